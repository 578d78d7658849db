/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox: effects once, commands once, and what an operator does with them (N1 to N4). */
#include "contract/store/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Lanes are the outbox's alone. */
#undef TEST
#define TEST TEST_BY_ROW

static int64_t entries(const char *status)
{
	return number(app, "SELECT count(*) FROM postroom_inbox WHERE status = '%s'", status);
}

static int once(struct session *session, const char *id, const char *handler)
{
	int status = postroom_inbox_once(session->box, id, handler);

	CHECK_MSG(status >= 0, "once: %d %s", status, postroom_errmsg(session->box));
	return status;
}

static int submit(const char *id, postroom_inbox_state *ret)
{
	int status = postroom_inbox_submit(app->box, "invoices", id, "{\"n\": 1}", ret);

	CHECK_MSG(status >= 0, "submit: %d %s", status, postroom_errmsg(app->box));
	return status;
}

/* Puts a command into a state that a worker would have brought it to. */
static void put_into(const char *id, const char *status)
{
	bool active = strcmp(status, "active") == 0;

	submit(id, NULL);
	sql(app,
	    "UPDATE postroom_inbox SET status = '%s', attempts = 3, last_error = 'no'%s "
	    "WHERE id = '%s'",
	    status,
	    active ? ", locked_by = '0f5a3c1e-7b2d-4e9a-8c11-2233445566aa', "
		     "locked_until = created_at"
		   : "",
	    id);
}

TEST(N1_each_handler_receives_an_event_once)
{
	begin(app);
	CHECK_INT(once(app, "e-1", "rewards"), POSTROOM_OK);
	CHECK_INT(once(app, "e-1", "mails"), POSTROOM_OK);
	CHECK_INT(once(app, "e-2", "rewards"), POSTROOM_OK);
	CHECK_INT(once(app, "e-1", "rewards"), POSTROOM_DUPLICATE);
	commit(app);
	begin(app);
	CHECK_INT(once(app, "e-1", "mails"), POSTROOM_DUPLICATE);
	CHECK_INT(once(app, "E-1", "mails"), POSTROOM_OK);
	commit(app);
	CHECK_INT(entries("completed"), 4);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox WHERE processed_at = created_at "
			      "AND payload IS NULL AND attempts = 0"),
		  4);
}

TEST(N2_the_effect_and_the_row_commit_together_or_not_at_all)
{
	sql(app, "CREATE TABLE ledger (id text)");
	begin(app);
	CHECK_INT(once(app, "e", "h"), POSTROOM_OK);
	sql(app, "INSERT INTO ledger VALUES ('e')");
	rollback(app);
	CHECK_INT(entries("completed"), 0);
	begin(app);
	CHECK_INT(once(app, "e", "h"), POSTROOM_OK);
	sql(app, "INSERT INTO ledger VALUES ('e')");
	commit(app);
	CHECK_INT(number(app, "SELECT count(*) FROM ledger"), 1);
	CHECK_INT(entries("completed"), 1);
}

TEST(N2_accept_does_not_end_the_transaction_of_the_caller)
{
	begin(app);
	once(app, "e", "h");
	CHECK(backend->in_transaction(app));
	once(app, "e", "h");
	CHECK(backend->in_transaction(app));
	CHECK_INT(postroom_inbox_once(app->box, "", "h"), POSTROOM_INVALID);
	CHECK(backend->in_transaction(app));
	commit(app);
	CHECK_INT(once(app, "alone", "h"), POSTROOM_OK);
	CHECK(!backend->in_transaction(app));
	CHECK_INT(once(app, "alone", "h"), POSTROOM_DUPLICATE);
}

/* A consumer of the event that app's open transaction has accepted. */
struct waiter {
	struct session *session;
	bool command;
	int status;
	postroom_inbox_state state;
	pthread_t thread;
	int blocked[2];
};

static void *accept_behind_another(void *context)
{
	struct waiter *waiter = context;
	postroom_box *box = waiter->session->box;

	begin(waiter->session);
	waiter->status = waiter->command
				 ? postroom_inbox_submit(box, "h", "e", NULL, &waiter->state)
				 : postroom_inbox_once(box, "e", "h");
	commit(waiter->session);
	return NULL;
}

/* Returns when it has to wait. */
static void start_waiter(struct waiter *waiter)
{
	char byte;

	CHECK_INT(pipe(waiter->blocked), 0);
	waiter->session = join();
	backend->announce_when_blocked(waiter->session, waiter->blocked[1]);
	CHECK_INT(pthread_create(&waiter->thread, NULL, accept_behind_another, waiter), 0);
	CHECK_INT(read(waiter->blocked[0], &byte, 1), 1);
}

static void end_waiter(struct waiter *waiter)
{
	CHECK_INT(pthread_join(waiter->thread, NULL), 0);
	leave(waiter->session);
	close(waiter->blocked[0]);
	close(waiter->blocked[1]);
}

TEST(N2_waiting_accept_takes_over_if_the_first_rolls_back)
{
	struct waiter waiter = { .status = -100 };

	begin(app);
	CHECK_INT(once(app, "e", "h"), POSTROOM_OK);
	start_waiter(&waiter);
	rollback(app);
	end_waiter(&waiter);
	CHECK_INT(waiter.status, POSTROOM_OK);
	CHECK_INT(entries("completed"), 1);
}

TEST(N2_waiting_accept_skips_if_the_first_commits)
{
	struct waiter waiter = { .status = -100 };

	begin(app);
	CHECK_INT(once(app, "e", "h"), POSTROOM_OK);
	start_waiter(&waiter);
	commit(app);
	end_waiter(&waiter);
	CHECK_INT(waiter.status, POSTROOM_DUPLICATE);
	CHECK_INT(entries("completed"), 1);
}

TEST(N3_waiting_submit_returns_state_of_the_first)
{
	struct waiter waiter = { .status = -100, .command = true };

	begin(app);
	CHECK_INT(once(app, "e", "h"), POSTROOM_OK);
	start_waiter(&waiter);
	commit(app);
	end_waiter(&waiter);
	CHECK_INT(waiter.status, POSTROOM_DUPLICATE);
	CHECK_INT(waiter.state, POSTROOM_INBOX_COMPLETED);
}

#define CONSUMERS 4
#define EVENTS 100

/* Each consumer gets every event; every third time it crashes before its commit. */
static void consume_all(void *context, int index)
{
	struct session *me = join();
	char id[20];

	(void)context;
	for (int i = 0; i < EVENTS; i++) {
		int at = index % 2 ? i : EVENTS - 1 - i;

		snprintf(id, sizeof(id), "e-%d", at);
		for (int try = (i + index) % 3 == 0 ? 0 : 1; try < 2; try++) {
			begin(me);
			if (once(me, id, "ledger") == POSTROOM_OK)
				sql(me, "INSERT INTO ledger VALUES ('%s')", id);
			if (try == 0)
				rollback(me);
			else
				commit(me);
		}
	}
	leave(me);
}

TEST(N2_parallel_duplicates_take_effect_once)
{
	sql(app, "CREATE TABLE ledger (id text)");
	in_parallel(CONSUMERS, consume_all, NULL);
	CHECK_INT(number(app, "SELECT count(*) FROM ledger"), EVENTS);
	CHECK_INT(number(app, "SELECT count(DISTINCT id) FROM ledger"), EVENTS);
	CHECK_INT(entries("completed"), EVENTS);
}

TEST(N3_a_command_submitted_twice_starts_once)
{
	postroom_inbox_state state = POSTROOM_INBOX_DEAD;

	begin(app);
	CHECK_INT(submit("c-1", &state), POSTROOM_OK);
	CHECK_INT(state, POSTROOM_INBOX_PENDING);
	rollback(app);
	CHECK_INT(entries("pending"), 0);
	CHECK_INT(submit("c-1", &state), POSTROOM_OK);
	CHECK_INT(submit("c-1", &state), POSTROOM_DUPLICATE);
	CHECK_INT(state, POSTROOM_INBOX_PENDING);
	CHECK_INT(submit("c-1", NULL), POSTROOM_DUPLICATE);
	CHECK_INT(entries("pending"), 1);
	CHECK_STR(text(app, "SELECT payload FROM postroom_inbox"), "{\"n\": 1}");
	CHECK_INT(postroom_inbox_submit(app->box, "other", "c-1", NULL, &state), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT payload FROM postroom_inbox WHERE handler_name = 'other'"),
		  "(null)");
	/* A worker has it already: it must not be processed here as well. */
	CHECK_INT(once(app, "c-1", "invoices"), POSTROOM_DUPLICATE);
}

TEST(N3_second_submit_returns_the_state)
{
	static const char *const states[] = { "pending", "active", "completed", "dead" };

	for (int i = 0; i < 4; i++) {
		postroom_inbox_state state = (postroom_inbox_state)-1;

		put_into(states[i], states[i]);
		CHECK_INT(submit(states[i], &state), POSTROOM_DUPLICATE);
		CHECK_INT(state, i);
		CHECK_INT(entries(states[i]), 1);
		CHECK_INT(number(app, "SELECT attempts FROM postroom_inbox WHERE id = '%s'",
				 states[i]),
			  3);
	}
}

static const char *refused_id(const char *id, const char *handler)
{
	CHECK_INT(postroom_inbox_once(app->box, id, handler), POSTROOM_INVALID);
	CHECK_INT(postroom_inbox_submit(app->box, handler, id, NULL, NULL), POSTROOM_INVALID);
	return postroom_errmsg(app->box);
}

TEST(N3_bad_input_is_refused_and_leaves_transaction_unchanged)
{
	postroom_inbox_state state = POSTROOM_INBOX_DEAD;
	char *long_id = calloc(1, 10241);

	memset(long_id, 'x', 10240);
	begin(app);
	CHECK_STR(refused_id(NULL, "h"), "inbox submit: id is missing");
	CHECK_STR(refused_id("e", NULL), "inbox submit: handler is missing");
	CHECK_STR(refused_id("", "h"), "inbox submit: id must not be empty");
	CHECK_STR(refused_id("e", ""), "inbox submit: handler must not be empty");
	CHECK_STR(refused_id(long_id, "h"), "inbox submit: id is longer than 1024 bytes");
	CHECK_STR(refused_id("e", long_id), "inbox submit: handler is longer than 255 bytes");
	CHECK_STR(refused_id("\xff", "h"), "inbox submit: id is not valid UTF-8");
	CHECK_STR(refused_id("e", "a\nb"),
		  "inbox submit: handler must not contain control characters");
	CHECK_INT(postroom_inbox_submit(app->box, "h", "e", "{", &state), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "inbox submit: payload is not valid JSON");
	CHECK_INT(postroom_inbox_submit(app->box, "h", "e", "\"\\u0000\"", &state),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_box_set_max_payload(app->box, 3), POSTROOM_OK);
	CHECK_INT(postroom_inbox_submit(app->box, "h", "e", "[12]", &state), POSTROOM_INVALID);
	CHECK_INT(state, POSTROOM_INBOX_DEAD);
	long_id[1024] = '\0';
	CHECK_INT(once(app, long_id, "h"), POSTROOM_OK);
	commit(app);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 1);
	free(long_id);
}

TEST(N1_constraints_guard_a_plain_insert)
{
	static const struct {
		const char *values, *part;
	} bad[] = {
		{ "'', 'h', 'pending', NULL", "id" },
		{ "'e', '', 'pending', NULL", "handler_name" },
		{ "'e', 'h', 'done', NULL", "status" },
		{ "'e', 'h', 'pending', '{'", "" },
		{ "'e', 'h', 'active', NULL", "locked_by" },
		{ "NULL, 'h', 'pending', NULL", "id" },
	};
	char long_id[1030] = "";

	memset(long_id, 'x', 1025);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_CONTAINS(refused(app,
				       "INSERT INTO postroom_inbox (id, handler_name, status, "
				       "payload) VALUES (%s)",
				       bad[i].values),
			       bad[i].part);
	CHECK_CONTAINS(refused(app,
			       "INSERT INTO postroom_inbox (id, handler_name) "
			       "VALUES ('%s', 'h')",
			       long_id),
		       "id: 1 to 1024 bytes");
	sql(app,
	    "INSERT INTO postroom_inbox (id, handler_name, status) VALUES ('e', 'h', 'completed')"
	    " ON CONFLICT DO NOTHING");
	CHECK_INT(once(app, "e", "h"), POSTROOM_DUPLICATE);
	refused(app, "INSERT INTO postroom_inbox (id, handler_name) VALUES ('e', 'h')");
}

/* The rows of a listing, in order. */
struct seen {
	char ids[200];
	postroom_row last;
	char last_text[4][100]; /* its strings live for the call only */
	int stop_after;
	int count;
};

static int see(void *context, const postroom_row *row)
{
	struct seen *seen = context;
	size_t len = strlen(seen->ids);

	snprintf(seen->ids + len, sizeof(seen->ids) - len, "%s/%s ", row->handler, row->id);
	seen->last = *row;
	snprintf(seen->last_text[0], 100, "%s", row->status);
	snprintf(seen->last_text[1], 100, "%s", row->payload ? row->payload : "(null)");
	snprintf(seen->last_text[2], 100, "%s", row->steps);
	snprintf(seen->last_text[3], 100, "%s", row->last_error ? row->last_error : "(null)");
	return ++seen->count == seen->stop_after;
}

static struct seen listed(const postroom_filter *filter, int32_t limit, int stop_after)
{
	struct seen seen = { .stop_after = stop_after };
	int status = postroom_list(store, filter, limit, see, &seen);

	CHECK_MSG(status == POSTROOM_OK, "list: %s", postroom_store_errmsg(store));
	return seen;
}
#define LISTED(...) listed(POSTROOM_FILTER(.table = POSTROOM_INBOX, __VA_ARGS__), 50, 0).ids

TEST(N4_the_inbox_is_listed_newest_first)
{
	char after[24];
	struct seen seen;

	put_into("a", "pending");
	put_into("b", "active");
	put_into("c", "dead");
	once(app, "d", "mails");
	once(app, "a", "mails");
	CHECK_STR(LISTED(0), "mails/a mails/d invoices/c invoices/b invoices/a ");
	CHECK_STR(LISTED(.status = "pending"), "invoices/a ");
	CHECK_STR(LISTED(.status = "active"), "invoices/b ");
	CHECK_STR(LISTED(.status = "dead"), "invoices/c ");
	CHECK_STR(LISTED(.status = "completed"), "mails/a mails/d ");
	CHECK_STR(LISTED(.handler = "mails"), "mails/a mails/d ");
	CHECK_STR(LISTED(.id = "a"), "mails/a invoices/a ");
	CHECK_STR(LISTED(.id = "a", .status = "pending"), "invoices/a ");
	CHECK_STR(LISTED(.id = "a", .handler = "unknown"), "");
	seen = listed(POSTROOM_FILTER(.table = POSTROOM_INBOX), 2, 0);
	CHECK_STR(seen.ids, "mails/a mails/d ");
	snprintf(after, sizeof(after), "%lld", (long long)seen.last.seq);
	CHECK_STR(listed(POSTROOM_FILTER(.table = POSTROOM_INBOX, .after = after), 2, 0).ids,
		  "invoices/c invoices/b ");
	CHECK_STR(listed(POSTROOM_FILTER(.table = POSTROOM_INBOX), 50, 1).ids, "mails/a ");
	CHECK_INT(postroom_list(store,
				POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "delivered"), 1,
				see, &seen),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_store_errmsg(store), "\"delivered\" is unknown");
}

TEST(N4_row_is_shown_with_every_column)
{
	struct seen seen;

	put_into("a", "active");
	seen = listed(POSTROOM_FILTER(.table = POSTROOM_INBOX, .id = "a", .handler = "invoices"), 1,
		      0);
	CHECK_INT(seen.count, 1);
	CHECK_STR(seen.last_text[0], "active");
	CHECK_STR(seen.last_text[1], "{\"n\": 1}");
	CHECK_STR(seen.last_text[2], "{}");
	CHECK_STR(seen.last_text[3], "no");
	CHECK_INT(seen.last.attempts, 3);
	CHECK_INT(seen.last.processed_at_us, 0);
	CHECK_INT(seen.last.locked_until_us, seen.last.created_at_us);
	CHECK_INT(seen.last.updated_at_us, seen.last.created_at_us);
	CHECK_INT(seen.last.next_attempt_at_us, seen.last.created_at_us);
	/* Also what a plain INSERT left out. */
	sql(app,
	    "INSERT INTO postroom_inbox (id, handler_name, status) VALUES ('e', 'h', 'completed')");
	seen = listed(POSTROOM_FILTER(.table = POSTROOM_INBOX, .id = "e"), 1, 0);
	CHECK_INT(seen.last.processed_at_us, seen.last.updated_at_us);
	CHECK(seen.last.processed_at_us > 0);
}

TEST(N4_retry_applies_to_dead_events_only)
{
	int64_t count = -1;

	put_into("a", "dead");
	put_into("b", "dead");
	put_into("c", "active");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX,
							.handler = "invoices", .id = "a")),
		  POSTROOM_OK);
	CHECK_STR(text(app, "SELECT status FROM postroom_inbox WHERE id = 'a' AND attempts = 0 "
			    "AND last_error = 'no' AND next_attempt_at >= created_at"),
		  "pending");
	CHECK_INT(entries("dead"), 1);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX,
							.handler = "invoices", .id = "a")),
		  POSTROOM_NOT_FOUND);
	CHECK_STR(postroom_store_errmsg(store),
		  "a is pending at invoices; only dead rows can be retried");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX,
							.handler = "invoices", .id = "c")),
		  POSTROOM_NOT_FOUND);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "mails",
							.id = "b")),
		  POSTROOM_NOT_FOUND);
	CHECK_STR(postroom_store_errmsg(store), "there is no event b of handler mails");
	CHECK_INT(postroom_retry_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "mails"),
				      10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 0);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
	CHECK_INT(entries("pending"), 2);
	CHECK_INT(entries("active"), 1);
}

/* Makes what there is look older. */
static void age(const char *where, int64_t seconds)
{
	bool sqlite = strcmp(backend->name, "sqlite") == 0;

	sql(app,
	    sqlite ? "UPDATE postroom_inbox SET updated_at = updated_at - %lld * 1000000 WHERE %s"
		   : "UPDATE postroom_inbox SET updated_at = updated_at - %lld * "
		     "interval '1 second' WHERE %s",
	    (long long)seconds, where);
}

ON_ONE(N4_dead_events_are_retried_after_the_clock_was_set_back, backend_sqlite)
{
	int64_t count = -1;

	put_into("a", "dead");
	put_into("b", "dead");
	age("true", -3600);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX,
							.handler = "invoices", .id = "a")),
		  POSTROOM_OK);
	CHECK_INT(postroom_retry_some(
			  store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .older_than_ms = 1000),
			  10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 0);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
}

TEST(N4_retry_without_a_name_is_refused_and_retries_nothing)
{
	put_into("a", "dead");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = NULL,
							.id = NULL)),
		  POSTROOM_INVALID);
	CHECK_STR(postroom_store_errmsg(store), "inbox retry: handler is missing");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = NULL,
							.id = "a")),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX,
							.handler = "invoices", .id = NULL)),
		  POSTROOM_INVALID);
	CHECK_STR(postroom_store_errmsg(store), "id is missing");
	CHECK_INT(entries("dead"), 1);
}

TEST(N4_purge_deletes_old_finished_events)
{
	int64_t count = -1;

	for (int i = 0; i < 5; i++) {
		char id[16];

		snprintf(id, sizeof(id), "e-%d", i);
		once(app, id, i == 4 ? "other" : "h");
	}
	put_into("a", "pending");
	put_into("b", "dead");
	put_into("c", "active");
	age("id <> 'e-0'", 7200);
	CHECK_INT(
		postroom_purge_some(store,
				    POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "completed",
						    .handler = "h", .older_than_ms = 3600000),
				    2, &count),
		POSTROOM_OK);
	CHECK_INT(count, 2);
	CHECK_INT(
		postroom_purge_some(store,
				    POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "completed",
						    .older_than_ms = 3600000),
				    10, &count),
		POSTROOM_OK);
	CHECK_INT(count, 2);
	CHECK_STR(LISTED(.status = "completed"), "h/e-0 ");
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "dead"),
				      10, &count),
		  POSTROOM_OK);
	CHECK_INT(count, 1);
	CHECK_STR(LISTED(0), "invoices/c invoices/a h/e-0 ");
	/* A purged entry counts as new. */
	CHECK_INT(once(app, "e-1", "h"), POSTROOM_OK);
	CHECK_INT(postroom_purge_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "pending"),
				      10, &count),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, &count),
		  POSTROOM_INVALID);
	CHECK_INT(entries("pending") + entries("active"), 2);
}

static void add_handler(void *context, const char *ns, const char *handler,
			const postroom_counts *counts)
{
	(void)ns;
	char *out = context;
	size_t len = strlen(out);

	snprintf(out + len, 100 - len, "%s %d %d %d %d; ", handler, (int)counts->pending,
		 (int)counts->processing, (int)counts->delivered, (int)counts->dead);
}

TEST(N4_the_inbox_is_counted_by_handler)
{
	postroom_counts counts;
	char handlers[100] = "";

	CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), &counts, NULL,
				 NULL),
		  POSTROOM_OK);
	CHECK_INT(counts.pending + counts.processing + counts.delivered + counts.dead, 0);
	put_into("a", "pending");
	put_into("b", "pending");
	put_into("c", "active");
	put_into("d", "dead");
	once(app, "a", "mails");
	CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), &counts,
				 add_handler, handlers),
		  POSTROOM_OK);
	CHECK_STR(handlers, "invoices 2 1 0 1; mails 0 0 1 0; ");
	CHECK_INT(counts.pending, 2);
	CHECK_INT(counts.processing, 1);
	CHECK_INT(counts.delivered, 1);
	CHECK_INT(counts.dead, 1);
}
