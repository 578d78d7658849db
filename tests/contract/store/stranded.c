/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No INSERT strands a message: whatever a plain INSERT puts into any column, the row is
 * refused, or delivered, or listed as dead; and the messages after it are delivered too.
 */
#include "contract/store/backend.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* SQL expressions that both databases know; %N is a random number. */
static const char *const numbers[] = { "NULL",
				       "-9223372036854775808",
				       "-1",
				       "0",
				       "1",
				       "2",
				       "3",
				       "4",
				       "5",
				       "63",
				       "64",
				       "1000000",
				       "1000001",
				       "2147483647",
				       "2147483648",
				       "1000000000000000",
				       "9007199254740993",
				       "9223372036854775807" };
static const char *const texts[] = { "NULL",
				     "''",
				     "'a'",
				     "'pending'",
				     "'processing'",
				     "'delivered'",
				     "'dead'",
				     "'{}'",
				     "'[1]'",
				     "'{\"a\": 1}'",
				     "'{\"a\": \"b\"}'",
				     "'null'",
				     "'1e5'",
				     "'0f5a3c1e-7b2d-4e9a-8c11-2233445566aa'",
				     "'0f5a3c1e7b2d4e9a8c112233445566aa'" };

/* Seconds from now. */
static const char *const times[] = { "NULL", "0",	  "-1",	      "1",     "-3600",
				     "3600", "-86400000", "86400000", "-1e12", "1e12" };

static const struct {
	const char *name;
	char kind;
} columns[] = {
	{ "id", 't' },
	{ "seq", 'n' },
	{ "namespace", 't' },
	{ "topic", 't' },
	{ "tenant_id", 't' },
	{ "key", 't' },
	{ "dedupe_key", 't' },
	{ "correlation_id", 't' },
	{ "payload", 't' },
	{ "content_type", 't' },
	{ "headers", 't' },
	{ "status", 't' },
	{ "attempts", 'n' },
	{ "claims", 'n' },
	{ "next_attempt_at", 'w' },
	{ "locked_by", 't' },
	{ "locked_until", 'w' },
	{ "last_attempt_at", 'w' },
	{ "last_error", 't' },
	{ "created_at", 'w' },
	{ "updated_at", 'w' },
	{ "delivered_at", 'w' },
	{ "state", 's' },
};

static const char *const states[] = { "NULL",	"'new'",	 "'scheduled'", "'held'",    "'dead'",
				      "'ready'", "'delayed'", "'other'",     "2" };

static unsigned draw(unsigned *state, size_t below)
{
	*state = *state * 1103515245 + 12345;
	return (*state >> 8) % (unsigned)below;
}

static void add_value(char *out, size_t size, char kind, unsigned *state)
{
	const char *value = kind == 's'	  ? states[draw(state, COUNT(states))]
			    : kind == 'n' ? numbers[draw(state, COUNT(numbers))]
			    : kind == 't' ? texts[draw(state, COUNT(texts))]
					  : times[draw(state, COUNT(times))];

	if (kind != 'w' || strcmp(value, "NULL") == 0)
		snprintf(out, size, "%s", value);
	else if (backend == &backend_sqlite)
		snprintf(out, size, "%s + CAST(%s * 1000000 AS INTEGER)", backend->now_us, value);
	else
		snprintf(out, size, "clock_timestamp() + %s * interval '1 second'", value);
}

/* An INSERT of topic, payload and up to four other columns; the same for the same seed. */
static void make_insert(unsigned seed, char *out, size_t size)
{
	char names[300] = "", list[1500] = "", value[300];
	unsigned state = seed * 2654435761u;
	unsigned taken = 0;

	for (unsigned n = 1 + draw(&state, 4); n > 0; n--) {
		unsigned at = draw(&state, COUNT(columns));

		if (taken & (1u << at))
			continue;
		taken |= 1u << at;
		add_value(value, sizeof(value), columns[at].kind, &state);
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s, ",
			 columns[at].name);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s, ", value);
	}
	snprintf(out, size, "INSERT INTO postroom_outbox (%s%s%slast_error) VALUES (%s%s%sNULL)",
		 names, taken & (1u << 3) ? "" : "topic, ", taken & (1u << 8) ? "" : "payload, ",
		 list, taken & (1u << 3) ? "" : "'t', ", taken & (1u << 8) ? "" : "'1', ");
	if (taken & (1u << 18)) /* last_error itself is among them */
		snprintf(out, size, "SELECT 1");
}

/* Delivers all that can be claimed. */
static void deliver_all(void)
{
	size_t count;

	do {
		postroom_batch *batch = CLAIM(.limit = 100);
		postroom_delivery *items = pr_batch_items(batch, &count);

		CHECK_INT(postroom_ack(store, batch, items, count), POSTROOM_OK);
		postroom_batch_free(batch);
	} while (count > 0);
}

TEST(C6_no_insert_strands_its_message)
{
	char statement[3000], error[1000];
	const char *now = backend == &backend_sqlite ? backend->now_us : "clock_timestamp()";
	int64_t taken = 0, seeds = soak(300, 20000);
	int64_t dead_letters;

	for (int64_t seed = 1; seed <= seeds; seed++) {
		make_insert((unsigned)seed, statement, sizeof(statement));
		if (!backend->run(app, statement, error, sizeof(error)))
			continue;
		taken++;
		PUT(.topic = "t", .payload = "1");
		sql(app,
		    "UPDATE postroom_outbox SET next_attempt_at = %s WHERE status = 'pending' "
		    "AND next_attempt_at > %s",
		    now, now);
		/* Sweeps find a low seq after a while: see pgsql_low_water.c. Here at once. */
		if (backend->lanes)
			sql(app, "UPDATE postroom_lanes SET low_water_seq = 0");
		postroom_store_close(store);
		store = open_store();
		deliver_all();
		CHECK_INT(postroom_sweep(store, 10, &dead_letters), POSTROOM_OK);
		deliver_all();
		CHECK_MSG(number(app, "SELECT count(*) FROM postroom_messages "
				      "WHERE status NOT IN ('delivered', 'dead')") == 0,
			  "stranded: %s", statement);
		CHECK_MSG(number(app, "SELECT count(*) FROM postroom_messages "
				      "WHERE status = 'delivered' AND delivered_at IS NULL") == 0,
			  "never purged: %s", statement);
		sql(app, "DELETE FROM postroom_outbox");
		sql(app, "DELETE FROM postroom_dedupe");
	}
	CHECK_MSG(taken > seeds / 20, "only %lld were taken", (long long)taken);
}
