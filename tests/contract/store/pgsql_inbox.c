/* SPDX-License-Identifier: Apache-2.0 */
/* PostgreSQL's own ways with the inbox: isolation, locks, SQL for every language (N2, N3). */
#include "contract/store/jobs.h"
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#define ONCE(id) text(app, "SELECT postroom_inbox_once('%s', 'h')", id)

static void check_aborted(int status)
{
	CHECK_INT(status, POSTROOM_TX_ABORTED);
	CHECK_STR(postroom_sqlstate(app->box), "40001");
	CHECK_CONTAINS(postroom_errmsg(app->box), "inbox ");
	CHECK_CONTAINS(postroom_errmsg(app->box), "try the transaction again");
}

/* An event committed after the snapshot is invisible, but its insertion conflicts. */
static void check_level(const char *level)
{
	struct session *other = join();
	postroom_inbox_state state;

	sql(app, "DELETE FROM postroom_inbox");
	CHECK_INT(postroom_inbox_once(other->box, "before", "h"), POSTROOM_OK);
	sql(app, "BEGIN ISOLATION LEVEL %s", level);
	CHECK_INT(postroom_inbox_once(app->box, "before", "h"), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_inbox_once(app->box, "mine", "h"), POSTROOM_OK);
	CHECK_INT(postroom_inbox_once(app->box, "mine", "h"), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_inbox_submit(app->box, "h", "before", NULL, &state), POSTROOM_DUPLICATE);
	CHECK_INT(state, POSTROOM_INBOX_COMPLETED);
	commit(app);
	for (int command = 0; command < 2; command++) {
		sql(app, "BEGIN ISOLATION LEVEL %s", level);
		CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"), 0);
		CHECK_INT(postroom_inbox_once(other->box, command ? "c" : "e", "h"), POSTROOM_OK);
		check_aborted(command ? postroom_inbox_submit(app->box, "h", "c", NULL, &state)
				      : postroom_inbox_once(app->box, "e", "h"));
		rollback(app);
		/* The transaction is repeated, as the error asks for, and it is a duplicate. */
		sql(app, "BEGIN ISOLATION LEVEL %s", level);
		CHECK_INT(postroom_inbox_once(app->box, command ? "c" : "e", "h"),
			  POSTROOM_DUPLICATE);
		commit(app);
	}
	leave(other);
}

/* TRAPS 24 */
PGSQL_TEST(N2_event_is_new_duplicate_or_retryable_at_every_isolation_level)
{
	check_level("REPEATABLE READ");
	check_level("SERIALIZABLE");
}

struct caller {
	struct session *session;
	char answer[10];
	pthread_t thread;
};

static void *call_once(void *context)
{
	struct caller *caller = context;

	CHECK(backend->query(caller->session, "SELECT postroom_inbox_once('e', 'h')",
			     caller->answer, sizeof(caller->answer)));
	return NULL;
}

static void check_sql_waiter(const char *ending, const char *expected)
{
	struct session *other = join(), *eye = join();
	struct caller caller = { .session = other };

	sql(app, "DELETE FROM postroom_inbox");
	begin(app);
	CHECK_STR(ONCE("e"), "t");
	CHECK_INT(pthread_create(&caller.thread, NULL, call_once, &caller), 0);
	await_blocked(eye, other);
	sql(app, "%s", ending);
	CHECK_INT(pthread_join(caller.thread, NULL), 0);
	CHECK_STR(caller.answer, expected);
	leave(other);
	leave(eye);
}

PGSQL_TEST(N2_waiting_accept_in_sql_takes_over_or_skips)
{
	check_sql_waiter("ROLLBACK", "t");
	check_sql_waiter("COMMIT", "f");
}

PGSQL_TEST(N2_sql_function_returns_true_once)
{
	CHECK_STR(ONCE("e"), "t");
	CHECK_STR(ONCE("e"), "f");
	CHECK_STR(text(app, "SELECT postroom_inbox_once(handler => 'g', id => 'e')"), "t");
	/* The library and the function see each other's. */
	CHECK_INT(postroom_inbox_once(app->box, "e", "h"), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_inbox_once(app->box, "f", "h"), POSTROOM_OK);
	CHECK_STR(ONCE("f"), "f");
	CHECK_STR(text(app, "SELECT concat_ws('|', status, processed_at IS NOT NULL, steps) "
			    "FROM postroom_inbox WHERE handler_name = 'g'"),
		  "completed|t|{}");
}

PGSQL_TEST(N3_sql_function_submits_once_and_returns_the_state)
{
	const char *again = "SELECT concat_ws('|', status, duplicate) FROM "
			    "postroom_inbox_submit('h', 'c', '{\"n\": 2}')";

	CHECK_STR(text(app, "SELECT concat_ws('|', status, duplicate) FROM "
			    "postroom_inbox_submit('h', 'c', '{\"n\": 1}')"),
		  "pending|f");
	CHECK_STR(text(app, "%s", again), "pending|t");
	sql(app, "UPDATE postroom_inbox SET status = 'dead'");
	CHECK_STR(text(app, "%s", again), "dead|t");
	CHECK_STR(text(app, "SELECT payload FROM postroom_inbox"), "{\"n\": 1}");
	CHECK_STR(text(app, "SELECT status FROM postroom_inbox_submit('h', 'bare')"), "pending");
	CHECK_STR(text(app, "SELECT payload FROM postroom_inbox WHERE id = 'bare'"), "(null)");
}

PGSQL_TEST(N3_sql_functions_raise_on_bad_input_and_write_nothing)
{
	static const struct {
		const char *call, *sqlstate, *part;
	} bad[] = {
		{ "once(NULL, 'h')", "23502", "id" },
		{ "once('e', NULL)", "23502", "handler_name" },
		{ "once('', 'h')", "23514", "id: 1 to 1024 bytes" },
		{ "once(repeat('a', 10240), 'h')", "23514", "id: 1 to 1024 bytes" },
		{ "once('e', '')", "23514", "handler_name: 1 to 255 bytes" },
		{ "once('e', E'a\\nb')", "23514", "handler_name: 1 to 255 bytes" },
		{ "submit('', 'e', '1')", "23514", "handler_name: 1 to 255 bytes" },
		{ "submit('h', 'e', '{')", "22P02", "json" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct refusal refusal = refusal_of(app, "SELECT postroom_inbox_%s", bad[i].call);

		CHECK_MSG(strcmp(refusal.sqlstate, bad[i].sqlstate) == 0, "%s: %s %s", bad[i].call,
			  refusal.sqlstate, refusal.message);
		CHECK_CONTAINS(refusal.message, bad[i].part);
	}
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
}

PGSQL_TEST(N2_inbox_calls_report_connection_errors)
{
	begin(app);
	refused(app, "SELECT 1 / 0");
	CHECK_INT(postroom_inbox_once(app->box, "e", "h"), POSTROOM_TX_ABORTED);
	CHECK_STR(postroom_errmsg(app->box),
		  "inbox once: the transaction has failed already; roll back");
	rollback(app);
	backend->disconnect(app);
	backend->connect(app, url);
	sql(app, "SET search_path = pg_catalog");
	begin(app);
	CHECK_INT(postroom_inbox_submit(app->box, "h", "e", NULL, NULL), POSTROOM_SCHEMA);
	CHECK_CONTAINS(postroom_errmsg(app->box), "inbox submit: ");
	CHECK(backend->in_transaction(app));
	rollback(app);
}

struct consumer {
	postroom_store *store;
	struct pr_incoming_event events[3];
	pthread_t thread;
};

static void *consume(void *context)
{
	struct consumer *by = context;
	struct pr_err err = { 0 };
	size_t at;
	int status = by->store->ops->inbox_insert(
		by->store,
		&(struct pr_inbox_insert){ "h", ledger_statement(), PR_ORDER_NONE, by->events, 3 },
		&at, &err);

	CHECK_MSG(status == POSTROOM_OK, "%d %s", status, err.text);
	return NULL;
}

static void start_consumer(struct consumer *consumer, struct session *eye)
{
	CHECK_INT(pthread_create(&consumer->thread, NULL, consume, consumer), 0);
	await_blocked_pid(eye, PQbackendPID(pgsql_store(consumer->store)->conn));
}

/* TRAPS 25, as for bulks: app keeps both in the middle of their work. */
PGSQL_TEST(N2_two_consumers_of_the_same_events_in_opposite_order_do_not_deadlock)
{
	struct consumer forth = { store,
				  { ARRIVAL(.id = "a"), ARRIVAL(.id = "b"), ARRIVAL(.id = "c") } };
	struct consumer back = { open_store(),
				 { ARRIVAL(.id = "c"), ARRIVAL(.id = "b"), ARRIVAL(.id = "a") } };
	struct session *eye = join();

	ledger_make();
	begin(app);
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, seq) VALUES ('b', 'h', 1000)");
	start_consumer(&forth, eye);
	start_consumer(&back, eye);
	rollback(app);
	CHECK_INT(pthread_join(forth.thread, NULL), 0);
	CHECK_INT(pthread_join(back.thread, NULL), 0);
	for (int i = 0; i < 3; i++)
		CHECK(!forth.events[i].duplicate && back.events[i].duplicate);
	CHECK_INT(ledger(), 3);
	/* The session that is aborted retries, with sequence numbers of its own. */
	CHECK_INT(number(app, "SELECT last_value FROM postroom_inbox_seq_seq"), 6);
	postroom_store_close(back.store);
	leave(eye);
}
