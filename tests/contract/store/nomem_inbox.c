/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the inbox, for nomem.c to starve. */
#include "contract/store/nomem.h"

static int64_t entries(const char *status)
{
	char statement[200];

	snprintf(statement, sizeof(statement),
		 "SELECT count(*) FROM postroom_inbox WHERE status = '%s'", status);
	return number(statement);
}

static void begin_with_business(void)
{
	app_sql("CREATE TABLE IF NOT EXISTS business (n integer)");
	app_begin();
	app_sql("INSERT INTO business VALUES (1)");
}

static int once(void)
{
	return postroom_inbox_once(world.box, "e", "h");
}

/* Either still open with all that was in it, or rolled back and reported so. */
static void transaction_is_whole_or_gone(void)
{
	if (!app_in_transaction())
		begin_with_business();
	CHECK_INT(number("SELECT count(*) FROM business"), 1);
	CHECK_INT(entries("completed"), 0);
}

static void business_and_event_commit(void)
{
	app_sql("COMMIT");
	CHECK_INT(number("SELECT count(*) FROM business"), 1);
	CHECK_INT(entries("completed"), 1);
}

TORTURE(N2_no_memory_to_accept_an_event, .prepare = begin_with_business, .run = once,
	.unchanged = transaction_is_whole_or_gone, .done = business_and_event_commit)

static int submit(void)
{
	postroom_inbox_state state = POSTROOM_INBOX_DEAD;
	int status = postroom_inbox_submit(world.box, "h", "c", "{\"n\": 1}", &state);

	CHECK_INT(state, status < 0 ? POSTROOM_INBOX_DEAD : POSTROOM_INBOX_PENDING);
	return status;
}

static void nothing_submitted(void)
{
	CHECK_INT(entries("pending"), 0);
}

static void one_submitted(void)
{
	CHECK_INT(entries("pending"), 1);
}

TORTURE(N3_no_memory_to_submit, .run = submit, .unchanged = nothing_submitted,
	.done = one_submitted)

static void submit_before(void)
{
	CHECK_INT(postroom_inbox_submit(world.box, "h", "c", "{\"n\": 1}", NULL), POSTROOM_OK);
	/* The box must prepare everything again. */
	postroom_box_free(world.box);
	world.box = new_box();
	CHECK(world.box);
}

static int submit_again(void)
{
	int status = submit();

	CHECK(status < 0 || status == POSTROOM_DUPLICATE);
	return status;
}

TORTURE(N3_no_memory_to_learn_the_state, .prepare = submit_before, .run = submit_again,
	.unchanged = one_submitted, .done = one_submitted)

static void make_dead(void)
{
	app_sql("INSERT INTO postroom_inbox (id, handler_name, status, payload) VALUES "
		"('a', 'h', 'dead', '{\"n\": 1}'), ('b', 'h', 'dead', NULL), "
		"('c', 'g', 'completed', NULL)");
}

static int see_row(void *context, const postroom_row *row)
{
	int *seen = context;

	CHECK(row->id && row->handler && row->status && row->steps);
	CHECK_INT(strcmp(row->id, "a") == 0, row->payload != NULL);
	++*seen;
	return 0;
}

static int list(void)
{
	int seen = 0;
	int status = postroom_list(
		world.store,
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead", .handler = "h"), 10,
		see_row, &seen);

	CHECK(status < 0 || seen == 2);
	return status;
}

TORTURE(N4_no_memory_to_list_the_inbox, .prepare = make_dead, .run = list)

static int retry(void)
{
	return postroom_retry(world.store,
			      POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h", .id = "a"));
}

static void two_dead(void)
{
	CHECK_INT(entries("dead"), 2);
}

static void one_alive(void)
{
	CHECK_INT(entries("dead"), 1);
	CHECK_INT(entries("pending"), 1);
}

TORTURE(N4_lack_of_memory_while_retrying_is_reported, .prepare = make_dead, .run = retry,
	.unchanged = two_dead, .done = one_alive)

static int purge(void)
{
	int64_t done = -1;
	int status = postroom_purge_some(
		world.store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead"), 10, &done);

	CHECK(status < 0 || done == 2);
	return status;
}

static void none_dead(void)
{
	CHECK_INT(entries("dead"), 0);
	CHECK_INT(entries("completed"), 1);
}

TORTURE(N4_no_memory_to_purge_the_inbox, .prepare = make_dead, .run = purge, .unchanged = two_dead,
	.done = none_dead)

static void see_handler(void *context, const char *ns, const char *handler,
			const postroom_counts *counts)
{
	(void)ns;
	int *seen = context;

	CHECK(handler && counts->dead + counts->delivered > 0);
	++*seen;
}

static int stats(void)
{
	postroom_counts counts;
	int seen = 0;
	int status = postroom_stats(world.store, POSTROOM_FILTER(.table = POSTROOM_INBOX), &counts,
				    see_handler, &seen);

	CHECK(status < 0 || (seen == 2 && counts.dead == 2 && counts.delivered == 1));
	return status;
}

TORTURE(N4_no_memory_to_count_the_inbox, .prepare = make_dead, .run = stats)
