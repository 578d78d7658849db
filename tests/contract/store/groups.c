/* SPDX-License-Identifier: Apache-2.0 */
/* Dead rows by cause, gauges and leases: X1, M1. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#define UUID "019a8f4e-7c11-7a52-8d53-0c9f4b7f2a10"

/* What C and both databases make of an error. */
static const struct {
	const char *error, *cause;
} vectors[] = {
	{ "", "" },
	{ "no numbers", "no numbers" },
	{ "HTTP 503 after 1200ms", "HTTP <n> after <n>ms" },
	{ "user " UUID " is gone", "user <uuid> is gone" },
	{ "user 019A8F4E-7C11-7A52-8D53-0C9F4B7F2A10", "user <uuid>" },
	{ "at 0x7ffeDEADbeef+0x1", "at <hex>+<hex>" },
	{ "0x" UUID, "<n>x<uuid>" },
	{ "999" UUID "1", "<n><uuid><n>" },
	{ "aa" UUID, "aa<uuid>" },
	{ "0xg 0X1f x0x", "<n>xg <n>X<n>f x<n>x" },
	{ "019a8f4e-7c11-7a52-8d53-0c9f4b7f2a1",
	  "<n>a<n>f<n>e-<n>c<n>-<n>a<n>-<n>d<n>-<n>c<n>f<n>b<n>f<n>a<n>" },
	{ "größe 12 → ٣", "größe <n> → ٣" },
	{ "1.2.3.4:5672", "<n>.<n>.<n>.<n>:<n>" },
};

TEST(X1_the_cause_of_an_error_is_the_same_in_c_and_sql)
{
	char out[PR_FINGERPRINT_SIZE];

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		int64_t count = -1;

		CHECK_INT(pr_fingerprint(vectors[i].error, out, sizeof(out)),
			  (int)strlen(vectors[i].cause));
		CHECK_STR(out, vectors[i].cause);
		sql(app, "DELETE FROM postroom_outbox");
		sql(app,
		    "INSERT INTO postroom_outbox (topic, payload, status, last_error) "
		    "VALUES ('t', '{}', 'dead', '%s')",
		    vectors[i].error);
		CHECK_INT(postroom_count(store, POSTROOM_FILTER(.fingerprint = vectors[i].cause),
					 10, &count),
			  POSTROOM_OK);
		CHECK_MSG(count == 1, "%s", vectors[i].error);
	}
}

/* Parts of what is replaced, in any order: the two programs find the same matches. */
TEST(X1_the_cause_of_a_random_error_is_the_same_in_c_and_sql)
{
	static const char *const parts[] = {
		UUID,  "019a8f4e", "7c11", "-", "0x", "0X",  "0", "9", "a",
		"DEF", "g",	   " ",	   "é", "٣",  "<n>", "%", "_", "\n",
	};
	uint32_t random = 1;

	for (int i = 0; i < 300; i++) {
		char error[1200] = "", out[PR_FINGERPRINT_SIZE];
		int64_t count = -1;

		for (int n = i % 30; n >= 0; n--) {
			random = random * 1664525 + 1013904223;
			strcat(error, parts[(random >> 16) % (sizeof(parts) / sizeof(parts[0]))]);
		}
		CHECK(pr_fingerprint(error, out, sizeof(out)) >= 0);
		sql(app, "DELETE FROM postroom_outbox");
		sql(app,
		    "INSERT INTO postroom_outbox (topic, payload, status, last_error) "
		    "VALUES ('t', '{}', 'dead', '%s')",
		    error);
		CHECK_INT(postroom_count(store, POSTROOM_FILTER(.fingerprint = out), 10, &count),
			  POSTROOM_OK);
		CHECK_MSG(count == 1, "%s: %s", error, out);
	}
}

/* 200 characters, not bytes, of the first 1000. */
TEST(X1_the_cause_of_a_long_error_is_cut_at_a_character)
{
	static const char *const parts[] = { "é", "7 ", "x" };
	char out[PR_FINGERPRINT_SIZE];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char error[5000] = "";
		int64_t count = -1;

		for (int n = 0; n < 1500; n++)
			strcat(error, parts[i]);
		CHECK(pr_fingerprint(error, out, sizeof(out)) > 0);
		CHECK_INT(pr_fingerprint(error, out, 10), POSTROOM_INVALID);
		CHECK(pr_fingerprint(error, out, sizeof(out)) > 0);
		sql(app,
		    "INSERT INTO postroom_outbox (topic, payload, status, last_error) "
		    "VALUES ('t', '{}', 'dead', '%s')",
		    error);
		CHECK_INT(postroom_count(store, POSTROOM_FILTER(.fingerprint = out), 10, &count),
			  POSTROOM_OK);
		CHECK_INT(count, 1);
	}
}

/* A group of rows without an error has the empty cause: what acts on it must not act on others. */
TEST(X1_empty_cause_selects_the_rows_without_an_error)
{
	int64_t count = -1;

	sql(app, "INSERT INTO postroom_outbox (topic, payload, status, last_error) VALUES "
		 "('t', '{}', 'dead', NULL), ('t', '{}', 'dead', ''), ('t', '{}', 'dead', 'error')");
	CHECK_INT(postroom_count(store, POSTROOM_FILTER(.fingerprint = ""), 10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 2);
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.status = "dead", .fingerprint = ""), 10,
				      &count),
		  POSTROOM_OK);
	CHECK_INT(count, 2);
	CHECK_INT(postroom_count(store, POSTROOM_FILTER(.fingerprint = "error"), 10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
}

struct groups {
	char text[600];
	int64_t first_us, last_us;
};

static int add_group(void *context, const postroom_group *group)
{
	struct groups *groups = context;
	size_t len = strlen(groups->text);

	snprintf(groups->text + len, sizeof(groups->text) - len, "%d %s %s%s%s [%s]; ",
		 (int)group->count, group->topic, group->handler ? group->handler : "",
		 group->handler ? " " : "", group->fingerprint,
		 group->example_error ? group->example_error : "(null)");
	CHECK(group->example_id && group->first_at_us <= group->last_at_us);
	groups->first_us = group->first_at_us;
	groups->last_us = group->last_at_us;
	return 0;
}

TEST(X1_dead_messages_are_grouped_by_cause_and_topic)
{
	struct groups groups = { 0 };
	int capped = -1;

	for (int i = 0; i < 3; i++)
		sql(app,
		    "INSERT INTO postroom_outbox (id, topic, payload, status, last_error) "
		    "VALUES ('00000000-0000-7000-8000-00000000000%d', 'a', '{}', 'dead', 'error "
		    "%d')",
		    i, i);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, status, last_error) VALUES "
		 "('b', '{}', 'dead', 'error 9'), ('a', '{}', 'pending', 'error 4')");
	sql(app, "INSERT INTO postroom_outbox (topic, payload, status) VALUES ('c', '{}', 'dead'), "
		 "('c', '{}', 'dead')");
	CHECK_INT(postroom_groups(store, POSTROOM_FILTER(.status = "dead"), 10, add_group, &groups,
				  &capped),
		  POSTROOM_OK);
	CHECK_STR(groups.text, "3 a error <n> [error 2]; 2 c  [(null)]; 1 b error <n> [error 9]; ");
	CHECK_INT(capped, 0);
	groups = (struct groups){ 0 };
	CHECK_INT(
		postroom_groups(store, POSTROOM_FILTER(.topic = "b"), 10, add_group, &groups, NULL),
		POSTROOM_OK);
	CHECK_STR(groups.text, "1 b error <n> [error 9]; ");
	groups = (struct groups){ 0 };
	CHECK_INT(postroom_groups(store, POSTROOM_FILTER(0), 1, add_group, &groups, NULL),
		  POSTROOM_OK);
	CHECK_STR(groups.text, "3 a error <n> [error 2]; ");
	CHECK_INT(postroom_groups(store, POSTROOM_FILTER(.status = "pending"), 1, add_group,
				  &groups, NULL),
		  POSTROOM_INVALID);
}

/* Fails the only message that is due for good. */
static void fail_at(const char *sink)
{
	postroom_batch *batch = CLAIM(0);

	store->sink = sink;
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "error"), POSTROOM_OK);
	postroom_batch_free(batch);
}

static int add_sink(void *context, const postroom_group *group)
{
	char *out = context;
	size_t len = strlen(out);

	snprintf(out + len, 100 - len, "%d %s; ", (int)group->count, group->sink);
	return 0;
}

static void check_sinks(postroom_table table, const char *expected)
{
	char sinks[100] = "";

	CHECK_INT(
		postroom_groups(store, POSTROOM_FILTER(.table = table), 10, add_sink, sinks, NULL),
		POSTROOM_OK);
	CHECK_STR(sinks, expected);
}

TEST(X1_dead_messages_are_grouped_by_the_sink_of_their_last_attempt)
{
	for (int i = 0; i < 5; i++) {
		PUT(.topic = "t", .payload = "{}");
		fail_at(i < 2 ? "old" : "bus");
	}
	check_sinks(POSTROOM_OUTBOX, "3 bus; 2 old; ");
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.sink = "bus"), 1, &(int64_t){ 0 }),
		  POSTROOM_OK);
	check_sinks(POSTROOM_OUTBOX, "2 bus; 2 old; ");
	/* The history of the first sink stays. */
	fail_at("old");
	check_sinks(POSTROOM_OUTBOX, "3 old; 2 bus; ");
	sql(app, "DELETE FROM postroom_attempts WHERE sink = 'bus'");
	check_sinks(POSTROOM_OUTBOX, "3 old; 2 ; ");
}

TEST(X1_filter_by_sink_selects_the_messages_of_its_group)
{
	static const char *const sinks[] = { "old", "bus", "", "nowhere" };
	static const int expected[] = { 2, 1, 3, 0 };
	postroom_counts counts;
	int64_t count = -1;

	for (int i = 0; i < 3; i++) {
		PUT(.topic = "t", .payload = "{}");
		fail_at(i < 2 ? "old" : "bus");
	}
	for (int i = 0; i < 3; i++) {
		PUT(.topic = "t", .payload = "{}");
		fail_at(NULL);
	}
	for (size_t i = 0; i < sizeof(sinks) / sizeof(sinks[0]); i++) {
		CHECK_INT(postroom_count(store, POSTROOM_FILTER(.sink = sinks[i]), 10, &count),
			  POSTROOM_OK);
		CHECK_INT(count, expected[i]);
		CHECK_INT(postroom_count(store, POSTROOM_FILTER(.status = "dead", .sink = sinks[i]),
					 10, &count),
			  POSTROOM_OK);
		CHECK_INT(count, expected[i]);
		CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.sink = sinks[i]), &counts, NULL,
					 NULL),
			  POSTROOM_OK);
		CHECK_INT(counts.dead, expected[i]);
		CHECK_INT(postroom_purge_some(store,
					      POSTROOM_FILTER(.status = "dead", .sink = sinks[i]),
					      10, &count),
			  POSTROOM_OK);
		CHECK_INT(count, expected[i]);
	}
	check_sinks(POSTROOM_OUTBOX, "");
}

TEST(X1_filter_by_sink_finds_delivered_messages_that_failed_there)
{
	postroom_batch *batch;
	int64_t count = -1;

	PUT(.topic = "t", .payload = "{}");
	fail_at("bus");
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(0), 1, &count), POSTROOM_OK);
	for (int i = 0; i < 2; i++) {
		batch = CLAIM(0);
		CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
		postroom_batch_free(batch);
		PUT(.topic = "t", .payload = "{}");
	}
	CHECK_INT(postroom_count(store, POSTROOM_FILTER(.status = "delivered", .sink = "bus"), 10,
				 &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
}

TEST(N4_dead_jobs_are_grouped_by_the_sink_of_their_last_attempt)
{
	int64_t count = -1;

	sql(app, "INSERT INTO postroom_inbox (id, handler_name, status, last_error) VALUES "
		 "('1', 'h', 'dead', 'e'), ('2', 'h', 'dead', 'e')");
	sql(app, "INSERT INTO postroom_attempts (handler_name, id, number, at, sink) "
		 "SELECT 'h', id, 1, updated_at, CASE id WHEN '1' THEN 'bus' ELSE 'exec' END "
		 "FROM postroom_inbox");
	check_sinks(POSTROOM_INBOX, "1 exec; 1 bus; ");
	CHECK_INT(postroom_retry_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .sink = "exec"), 10,
				      &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
	check_sinks(POSTROOM_INBOX, "1 bus; ");
}

TEST(N4_dead_jobs_are_grouped_by_cause_and_handler)
{
	struct groups groups = { 0 };

	sql(app, "INSERT INTO postroom_inbox (id, handler_name, topic, status, last_error) VALUES "
		 "('1', 'h', 't', 'dead', 'e 1'), ('2', 'h', 't', 'dead', 'e 2'), ('1', 'g', NULL, "
		 "'dead', 'e 3')");
	CHECK_INT(postroom_groups(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, add_group,
				  &groups, NULL),
		  POSTROOM_OK);
	CHECK_STR(groups.text, "2 t h e <n> [e 2]; 1 g g e <n> [e 3]; ");
}

static void add_topic(void *context, const struct pr_topic_gauges *topic)
{
	char *out = context;
	size_t len = strlen(out);

	snprintf(out + len, 400 - len, "%s %d %d %d %d; ", topic->topic, (int)topic->pending,
		 (int)topic->processing, (int)topic->failed_pending, (int)topic->dead);
}

TEST(M1_gauges_count_every_state_up_to_the_cap)
{
	struct pr_gauges gauges;
	struct pr_err err = { 0 };
	char topics[400] = "";
	postroom_batch *batch;

	CHECK_INT(store->ops->collect(store, 100, &gauges, add_topic, topics, &err), POSTROOM_OK);
	CHECK_INT(gauges.pending + gauges.processing + gauges.dead + gauges.due, 0);
	CHECK_INT(gauges.oldest_age_us, -1);
	CHECK_INT(gauges.dead_since_us, 0);
	CHECK(!gauges.capped && !gauges.topics_capped);
	PUT(.topic = "a", .payload = "{}");
	PUT(.topic = "a", .payload = "{}", .key = "k");
	PUT(.topic = "later", .payload = "{}", .delay_ms = 3600000);
	PUT(.topic = "f", .payload = "{}");
	batch = CLAIM(.topic = "f", .base_delay_ms = 3600000);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "x"), POSTROOM_OK);
	postroom_batch_free(batch);
	PUT(.topic = "p", .payload = "{}");
	batch = CLAIM(.topic = "p");
	sql(app, "INSERT INTO postroom_outbox (topic, payload, status) VALUES ('d', '{}', 'dead')");
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, status) VALUES ('1', 'h', 'dead'), "
		 "('2', 'h', 'pending'), ('3', 'h', 'completed')");
	CHECK_MSG(store->ops->collect(store, 1000, &gauges, add_topic, topics, &err) >= 0, "%s",
		  err.text);
	CHECK_INT(gauges.pending, 4);
	CHECK_INT(gauges.processing, 1);
	CHECK_INT(gauges.failed_pending, 1);
	CHECK_INT(gauges.scheduled, 1);
	CHECK_INT(gauges.dead, 1);
	CHECK_INT(gauges.due, 2);
	CHECK_INT(gauges.inbox_pending, 1);
	CHECK_INT(gauges.inbox_active, 0);
	CHECK_INT(gauges.inbox_dead, 1);
	CHECK(gauges.oldest_age_us >= 0 && gauges.oldest_age_us < 600 * 1000000LL);
	CHECK(gauges.dead_since_us > 0 && gauges.inbox_dead_since_us > 0);
	CHECK(gauges.table_bytes > 0 && !gauges.capped);
	CHECK(strstr(topics, "a 2 0 0 0; ") && strstr(topics, "d 0 0 0 1; "));
	CHECK(strstr(topics, "f 1 0 1 0; ") && strstr(topics, "h 1 0 0 1; "));
	sql(app, "INSERT INTO postroom_outbox (topic, payload, status) VALUES ('d', '{}', 'dead')");
	CHECK_INT(store->ops->collect(store, 100, &gauges, NULL, NULL, &err), POSTROOM_OK);
	CHECK_INT(gauges.dead, 2);
	CHECK_INT(gauges.dead_since_us, 0); /* one row is all that this cap allows to read */
	CHECK(gauges.inbox_dead_since_us > 0);
	CHECK_INT(store->ops->collect(store, 1, &gauges, NULL, NULL, &err), POSTROOM_OK);
	CHECK(gauges.capped);
	postroom_batch_free(batch);
}

/* Submits a job while the figures of the outbox are read, before those of the inbox are. */
static void submit_meanwhile(void *context, const struct pr_topic_gauges *topic)
{
	if (topic->table == POSTROOM_OUTBOX)
		sql(app, "INSERT INTO postroom_inbox (id, handler_name) VALUES ('1', 'late')");
	add_topic(context, topic);
}

TEST(M1_gauges_are_read_in_one_snapshot)
{
	struct pr_gauges gauges;
	struct pr_err err = { 0 };
	char topics[400] = "";

	PUT(.topic = "a", .payload = "{}");
	CHECK_INT(store->ops->collect(store, 1000, &gauges, submit_meanwhile, topics, &err),
		  POSTROOM_OK);
	CHECK_STR(topics, "a 1 0 0 0; ");
	CHECK_INT(store->ops->collect(store, 1000, &gauges, NULL, NULL, &err), POSTROOM_OK);
	CHECK_INT(gauges.inbox_pending, 1);
}

struct leases {
	int count;
	int64_t messages;
	char worker[40];
};

static void add_lease(void *context, const struct pr_lease_view *lease)
{
	struct leases *leases = context;

	leases->count++;
	leases->messages += lease->messages;
	snprintf(leases->worker, sizeof(leases->worker), "%s", lease->worker);
	CHECK(lease->locked_until_us > 0);
}

TEST(M1_live_leases_are_counted_by_worker)
{
	struct leases leases = { 0 };
	struct pr_err err = { 0 };
	postroom_batch *batch;

	PUT(.topic = "a", .payload = "{}", .key = "k");
	PUT(.topic = "a", .payload = "{}", .key = "k");
	CHECK_INT(pr_store_leases(store, add_lease, &leases, &err), POSTROOM_OK);
	CHECK_INT(leases.count, 0);
	batch = CLAIM();
	CHECK_MSG(pr_store_leases(store, add_lease, &leases, &err) >= 0, "%s", err.text);
	CHECK_INT(leases.count, 1);
	CHECK_INT(leases.messages, 2);
	CHECK_STR(leases.worker, store->worker);
	postroom_batch_free(batch);
}
