/* SPDX-License-Identifier: Apache-2.0 */
/*
  * Errors that only PostgreSQL can cause: a transaction that one failed statement
  * ends, sessions that wait for each other, and unusual connections.
 */
#include "store/pgsql/named.h"
#include "contract/store/pgsql.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

static void await_locks(struct session *eye, int pid, bool waiting)
{
	while ((number(eye, "SELECT count(*) FROM pg_locks WHERE pid = %d AND NOT granted", pid) >
		0) != waiting)
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

void await_blocked_pid(struct session *eye, int pid)
{
	await_locks(eye, pid, true);
}

void await_unblocked_pid(struct session *eye, int pid)
{
	await_locks(eye, pid, false);
}

void await_blocked(struct session *eye, struct session *session)
{
	await_blocked_pid(eye, PQbackendPID(conn_of(session)));
}

void end_backend(struct session *eye, int pid)
{
	sql(eye, "SELECT pg_terminate_backend(%d)", pid);
	while (number(eye, "SELECT count(*) FROM pg_stat_activity WHERE pid = %d", pid) > 0)
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

bool is_prepared(postroom_store *used, const struct pgsql_sql *sql)
{
	return pgsql_store(used)->prepared[sql->number].prepared;
}

struct refusal refusal_of(struct session *session, const char *format, ...)
{
	struct refusal refusal;
	char statement[8192];
	const char *constraint;
	PGresult *result;
	va_list args;

	va_start(args, format);
	CHECK(vsnprintf(statement, sizeof(statement), format, args) < (int)sizeof(statement));
	va_end(args);
	result = PQexec(conn_of(session), statement);
	CHECK_MSG(PQresultStatus(result) == PGRES_FATAL_ERROR, "was not refused: %s", statement);
	constraint = PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);
	snprintf(refusal.sqlstate, sizeof(refusal.sqlstate), "%s",
		 PQresultErrorField(result, PG_DIAG_SQLSTATE));
	snprintf(refusal.constraint, sizeof(refusal.constraint), "%s",
		 constraint ? constraint : "");
	snprintf(refusal.message, sizeof(refusal.message), "%s",
		 PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
	PQclear(result);
	return refusal;
}

static void *produce(void *context)
{
	struct producer *producer = context;

	if (producer->count > 1)
		producer->status = postroom_enqueue_many(producer->session->box, producer->messages,
							 producer->count, producer->receipts);
	else
		producer->status = postroom_enqueue(producer->session->box, producer->messages,
						    &producer->receipt);
	return NULL;
}

void start_producer(struct producer *producer)
{
	CHECK_INT(pthread_create(&producer->thread, NULL, produce, producer), 0);
}

void end_producer(struct producer *producer)
{
	CHECK_INT(pthread_join(producer->thread, NULL), 0);
}

const char *take_one(void)
{
	static char id[POSTROOM_ID_SIZE];
	postroom_batch *batch = claim_one();

	snprintf(id, sizeof(id), "%s", only_item(batch)->id);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	return id;
}

void fill(int64_t count, const char *columns, const char *values)
{
	sql(app,
	    "INSERT INTO postroom_outbox (topic, payload%s) SELECT 't', to_jsonb(i)%s "
	    "FROM generate_series(1, %lld) AS i",
	    columns, values, (long long)count);
}

void put_some(int count, const char *key)
{
	for (int i = 0; i < count; i++)
		PUT(.topic = "t", .payload = "1", .key = key);
}

postroom_store *open_at(const char *at)
{
	postroom_store *opened = NULL;

	CHECK_MSG(postroom_store_open(at, &opened) >= 0, "%s", postroom_store_errmsg(opened));
	return opened;
}

void url_with_options(const char *options, char out[400])
{
	int length = snprintf(out, 400, "%s&options=", url);

	for (; *options; options++)
		length += snprintf(out + length, (size_t)(400 - length),
				   *options == ' ' || *options == '=' ? "%%%02X" : "%c",
				   (unsigned)*options);
	CHECK(length < 400);
}

static const postroom_message *keyed(const char *key)
{
	static postroom_message messages[8];
	static unsigned next;
	postroom_message *message = &messages[next++ % 8];

	*message = *POSTROOM_MESSAGE(.topic = "t", .payload = "1", .dedupe_key = key);
	return message;
}

/* The transaction must still be there, with what was done in it before. */
static void check_still_usable(struct session *session)
{
	CHECK_INT(PQtransactionStatus(conn_of(session)), PQTRANS_INTRANS);
	CHECK_INT(number(session, "SELECT count(*) FROM business"), 1);
}

static void check_aborted(struct session *session, int status, const char *sqlstate)
{
	CHECK_MSG(status == POSTROOM_TX_ABORTED, "status %d: %s", status,
		  postroom_errmsg(session->box));
	CHECK_STR(postroom_sqlstate(session->box), sqlstate);
	CHECK_INT(PQtransactionStatus(conn_of(session)), PQTRANS_INERROR);
}

PGSQL_TEST(E1_foreseeable_error_leaves_transaction_usable)
{
	postroom_message many[3] = { *keyed("a"), *keyed("b"), *keyed("a") };
	postroom_receipt receipts[3];

	sql(app, "CREATE TABLE business (n integer)");
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(postroom_enqueue(app->box, POSTROOM_MESSAGE(.topic = "t", .payload = "{"), NULL),
		  POSTROOM_INVALID);
	check_still_usable(app);
	CHECK_INT(postroom_enqueue(app->box,
				   POSTROOM_MESSAGE(.topic = "t", .payload = "\"\\u0000\""), NULL),
		  POSTROOM_INVALID);
	check_still_usable(app);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_DUPLICATE);
	check_still_usable(app);
	CHECK_INT(postroom_enqueue_many(app->box, many, 3, receipts), POSTROOM_OK);
	CHECK_INT(receipts[0].duplicate + receipts[2].duplicate, 2);
	CHECK_INT(receipts[1].duplicate, 0);
	many[1].topic = "";
	CHECK_INT(postroom_enqueue_many(app->box, many, 3, receipts), POSTROOM_INVALID);
	check_still_usable(app);
	commit(app);
	CHECK_INT(rows("pending"), 2);
}

PGSQL_TEST(E1_connection_in_another_encoding_is_refused_and_stays_usable)
{
	sql(app, "CREATE TABLE business (n integer)");
	begin(app);
	sql(app, "INSERT INTO business VALUES (1)");
	CHECK_INT(PQsetClientEncoding(conn_of(app), "LATIN1"), 0);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "LATIN1");
	CHECK_INT(postroom_enqueue_many(app->box, keyed("a"), 1, NULL), POSTROOM_INVALID);
	check_still_usable(app);
	CHECK_INT(PQsetClientEncoding(conn_of(app), "UTF8"), 0);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), 1);
}

PGSQL_TEST(E1_busy_or_pipelined_connection_is_refused_and_stays_usable)
{
	PGresult *result;

	begin(app);
	CHECK_INT(PQenterPipelineMode(conn_of(app)), 1);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "pipeline");
	CHECK_INT(PQexitPipelineMode(conn_of(app)), 1);
	CHECK_INT(PQsendQuery(conn_of(app), "SELECT 1"), 1);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "in progress");
	CHECK_INT(postroom_enqueue_many(app->box, keyed("a"), 1, NULL), POSTROOM_INVALID);
	while ((result = PQgetResult(conn_of(app)))) {
		CHECK_STR(PQgetvalue(result, 0, 0), "1");
		PQclear(result);
	}
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), 1);
}

PGSQL_TEST(E1_enqueue_without_a_transaction_commits_by_itself)
{
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_DUPLICATE);
	CHECK_INT(PQtransactionStatus(conn_of(app)), PQTRANS_IDLE);
	CHECK_INT(rows("pending"), 1);
}

/* A transaction of its own keeps its isolation level, even if it must read the first row of a key. */
PGSQL_TEST(E1_enqueue_leaves_nothing_in_the_session)
{
	begin(app);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_enqueue_many(app->box, keyed("b"), 1, NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_prepared_statements"), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_listening_channels()"), 0);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_settings WHERE source = 'session'"
			      " AND name <> 'client_encoding'"),
		  0);
	CHECK_INT(number(app, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"
			      " AND locktype = 'advisory'"),
		  0);
}

PGSQL_TEST(E1_deadlock_is_reported_as_aborted_transaction)
{
	struct session *other = join(), *eye = join();
	struct producer producer = { .session = other, .messages = keyed("a"), .count = 1 };

	begin(app);
	begin(other);
	sql(app, "SET LOCAL deadlock_timeout = '1h'");
	sql(other, "SET LOCAL deadlock_timeout = '1h'");
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(other->box, keyed("b"), NULL), POSTROOM_OK);
	start_producer(&producer);
	await_blocked(eye, other);
	/* The session with the shorter timeout checks first and is the one to abort. */
	sql(app, "SET LOCAL deadlock_timeout = '1ms'");
	check_aborted(app, postroom_enqueue(app->box, keyed("b"), NULL), "40P01");
	CHECK_CONTAINS(postroom_errmsg(app->box), "again");
	rollback(app);
	end_producer(&producer);
	CHECK_INT(producer.status, POSTROOM_OK);
	commit(other);
	CHECK_INT(rows("pending"), 2);
	leave(other);
	leave(eye);
}

static void check_after_snapshot(const char *level)
{
	struct session *other = join();
	postroom_message many[2];
	postroom_receipt first, receipt;

	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_dedupe");
	sql(app, "BEGIN ISOLATION LEVEL %s", level);
	CHECK_INT(rows(NULL), 0);
	begin(other);
	CHECK_INT(postroom_enqueue(other->box, keyed("k"), &first), POSTROOM_OK);
	commit(other);
	check_aborted(app, postroom_enqueue(app->box, keyed("k"), &receipt), "40001");
	CHECK_CONTAINS(postroom_errmsg(app->box), "again");
	CHECK_INT(postroom_enqueue(app->box, keyed("x"), NULL), POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(postroom_errmsg(app->box), "roll back");
	rollback(app);
	/* Doing the transaction again finds the duplicate; what was there before is no failure. */
	sql(app, "BEGIN ISOLATION LEVEL %s", level);
	CHECK_INT(postroom_enqueue(app->box, keyed("k"), &receipt), POSTROOM_DUPLICATE);
	CHECK_STR(receipt.id, first.id);
	commit(app);
	/* The same in bulk. */
	sql(app, "BEGIN ISOLATION LEVEL %s", level);
	CHECK_INT(rows(NULL), 1);
	begin(other);
	CHECK_INT(postroom_enqueue(other->box, keyed("l"), &first), POSTROOM_OK);
	commit(other);
	many[0] = *keyed("l");
	many[1] = *keyed("m");
	check_aborted(app, postroom_enqueue_many(app->box, many, 2, NULL), "40001");
	rollback(app);
	CHECK_INT(rows(NULL), 2);
	leave(other);
}

/* TRAPS 24 */
PGSQL_TEST(E1_duplicate_behind_the_snapshot_is_a_serialization_failure)
{
	check_after_snapshot("REPEATABLE READ");
	check_after_snapshot("SERIALIZABLE");
}

PGSQL_TEST(E1_serializable_transaction_without_conflicts_succeeds)
{
	postroom_message many[3] = { *keyed("a"), *keyed("b"), *keyed("c") };

	sql(app, "BEGIN ISOLATION LEVEL SERIALIZABLE");
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, keyed("a"), NULL), POSTROOM_DUPLICATE);
	CHECK_INT(postroom_enqueue_many(app->box, many, 3, NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), 3);
}

PGSQL_TEST(E1_timeout_is_reported_as_aborted_transaction)
{
	struct session *other = join();

	begin(other);
	CHECK_INT(postroom_enqueue(other->box, keyed("k"), NULL), POSTROOM_OK);
	begin(app);
	sql(app, "SET LOCAL statement_timeout = '50ms'");
	check_aborted(app, postroom_enqueue(app->box, keyed("k"), NULL), "57014");
	CHECK_CONTAINS(postroom_errmsg(app->box), "timeout");
	rollback(app);
	begin(app);
	sql(app, "SET LOCAL lock_timeout = '50ms'");
	check_aborted(app, postroom_enqueue(app->box, keyed("k"), NULL), "55P03");
	CHECK_CONTAINS(postroom_errmsg(app->box), "lock");
	rollback(app);
	commit(other);
	leave(other);
	CHECK_INT(rows("pending"), 1);
}

PGSQL_TEST(E1_a_missing_privilege_is_an_aborted_transaction_and_names_the_table)
{
	int pid = PQbackendPID(conn_of(app));

	sql(app, "CREATE ROLE postroom_test_nobody_%d", pid);
	begin(app);
	sql(app, "SET LOCAL ROLE postroom_test_nobody_%d", pid);
	check_aborted(app, postroom_enqueue(app->box, keyed("k"), NULL), "42501");
	CHECK_CONTAINS(postroom_errmsg(app->box), "postroom_outbox");
	CHECK_CONTAINS(postroom_errmsg(app->box), "INSERT");
	rollback(app);
	sql(app, "DROP ROLE postroom_test_nobody_%d", pid);
	CHECK_INT(rows(NULL), 0);
}

PGSQL_TEST(E1_read_only_transaction_is_reported)
{
	sql(app, "BEGIN READ ONLY");
	check_aborted(app, postroom_enqueue(app->box, keyed("k"), NULL), "25006");
	CHECK_CONTAINS(postroom_errmsg(app->box), "read-only");
	rollback(app);
}

PGSQL_TEST(E1_a_closed_connection_has_a_clear_status)
{
	struct session *other = join();

	begin(other);
	CHECK_INT(postroom_enqueue(other->box, keyed("a"), NULL), POSTROOM_OK);
	end_backend(app, PQbackendPID(conn_of(other)));
	CHECK_INT(postroom_enqueue(other->box, keyed("b"), NULL), POSTROOM_TX_ABORTED);
	CHECK_MSG(strlen(postroom_errmsg(other->box)) > strlen("enqueue: ") + 10, "%s",
		  postroom_errmsg(other->box));
	CHECK_INT(postroom_enqueue(other->box, keyed("b"), NULL), POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(postroom_errmsg(other->box), "closed");
	CHECK_INT(postroom_enqueue_many(other->box, keyed("b"), 1, NULL), POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(postroom_errmsg(other->box), "closed");
	leave(other);
	CHECK_INT(rows(NULL), 0);
}

/* TRAPS 23, as producers in other languages meet it. */
static void check_sql_waiter(bool first_commits)
{
	struct session *other = join(), *eye = join();
	postroom_receipt held;
	PGresult *result;

	sql(app, "DELETE FROM postroom_outbox");
	sql(app, "DELETE FROM postroom_dedupe");
	begin(app);
	CHECK_INT(postroom_enqueue(app->box, keyed("k"), &held), POSTROOM_OK);
	CHECK_INT(PQsendQuery(conn_of(other),
			      "SELECT id, duplicate FROM postroom_enqueue('t', '1', "
			      "dedupe_key => 'k')"),
		  1);
	await_blocked(eye, other);
	if (first_commits)
		commit(app);
	else
		rollback(app);
	result = PQgetResult(conn_of(other));
	CHECK_MSG(PQntuples(result) == 1, "%s", PQresultErrorMessage(result));
	CHECK_STR(PQgetvalue(result, 0, 1), first_commits ? "t" : "f");
	CHECK_INT(strcmp(PQgetvalue(result, 0, 0), held.id) == 0, first_commits);
	CHECK_STR(PQgetvalue(result, 0, 0), text(app, "SELECT id FROM postroom_outbox"));
	PQclear(result);
	CHECK(!PQgetResult(conn_of(other)));
	CHECK_INT(rows("pending"), 1);
	leave(other);
	leave(eye);
}

PGSQL_TEST(E3_sql_insert_that_waits_for_a_key_inserts_or_returns_first_id)
{
	check_sql_waiter(true);
	check_sql_waiter(false);
}

PGSQL_TEST(E3_duplicate_behind_the_snapshot_is_a_serialization_failure_in_sql)
{
	sql(app, "BEGIN ISOLATION LEVEL REPEATABLE READ");
	CHECK_INT(rows(NULL), 0);
	{
		struct session *other = join();

		sql(other, "SELECT postroom_enqueue('t', '1', dedupe_key => 'k')");
		leave(other);
	}
	CHECK_STR(refusal_of(app, "SELECT postroom_enqueue('t', '1', dedupe_key => 'k')").sqlstate,
		  "40001");
	rollback(app);
}

/* A waiting bulk inserts the keys that the holder rolls back, and returns those that it commits. */
PGSQL_TEST(E7_a_bulk_waits_for_a_key_like_a_single_message)
{
	postroom_message many[3] = { *keyed("c"), *keyed("b"), *keyed("a") };
	struct session *other = join(), *eye = join();
	struct producer producer = { .session = other, .messages = many, .count = 3 };

	begin(app);
	begin(other);
	CHECK_INT(postroom_enqueue(app->box, keyed("b"), NULL), POSTROOM_OK);
	start_producer(&producer);
	await_blocked(eye, other);
	rollback(app);
	end_producer(&producer);
	CHECK_INT(producer.status, POSTROOM_OK);
	commit(other);
	CHECK_INT(rows("pending"), 3);
	leave(other);
	leave(eye);
}

#define KEYS 2500

/* The same keys forth and back. */
static postroom_message *keys_in_order(char names[KEYS][16], bool backwards)
{
	postroom_message *messages = calloc(KEYS, sizeof(*messages));

	CHECK(messages);
	for (int i = 0; i < KEYS; i++)
		messages[i] = *POSTROOM_MESSAGE(.topic = "t", .payload = "1",
						.dedupe_key = names[backwards ? KEYS - 1 - i : i]);
	return messages;
}

/*
  * TRAPS 25: app holds a key in the middle, so that both bulks block in the
  * middle of their work, then lets them continue. In opposite orders each would
 * hold what the other needs.
 */
PGSQL_TEST(E7_two_bulks_with_the_same_keys_in_opposite_order_do_not_deadlock)
{
	static char names[KEYS][16];
	struct session *one = join(), *two = join(), *eye = join();
	struct producer forth = { .session = one, .count = KEYS };
	struct producer back = { .session = two, .count = KEYS };

	for (int i = 0; i < KEYS; i++)
		snprintf(names[i], sizeof(names[i]), "k-%04d", i);
	forth.messages = keys_in_order(names, false);
	back.messages = keys_in_order(names, true);
	begin(app);
	begin(one);
	begin(two);
	CHECK_INT(postroom_enqueue(app->box, keyed(names[KEYS / 2]), NULL), POSTROOM_OK);
	start_producer(&forth);
	await_blocked(eye, one);
	start_producer(&back);
	await_blocked(eye, two);
	rollback(app);
	end_producer(&forth);
	CHECK_MSG(forth.status == POSTROOM_OK, "%s", postroom_errmsg(one->box));
	commit(one);
	end_producer(&back);
	CHECK_MSG(back.status == POSTROOM_OK, "%s", postroom_errmsg(two->box));
	commit(two);
	CHECK_INT(rows("pending"), KEYS);
	free((void *)forth.messages);
	free((void *)back.messages);
	leave(one);
	leave(two);
	leave(eye);
}

#define MANY 70000

static void fill_many(postroom_message *messages, char (*payloads)[16], char (*names)[16])
{
	for (int i = 0; i < MANY; i++) {
		snprintf(payloads[i], sizeof(payloads[i]), "%d", i);
		/* In no order of their own; each second one has none; one is a duplicate. */
		snprintf(names[i], sizeof(names[i]), "k-%d", i * 7919 % MANY);
		messages[i] = *POSTROOM_MESSAGE(.topic = "bulk", .payload = payloads[i],
						.idempotency_key = i % 2 ? names[i] : NULL,
						.tenant_id = i % 3 ? TENANT : NULL);
	}
	messages[MANY - 1].idempotency_key = messages[MANY - 3].idempotency_key = "twice";
	messages[MANY - 1].tenant_id = messages[MANY - 3].tenant_id = NULL;
}

/* TRAPS 32, and seq is the caller's order whatever the order of writing. */
PGSQL_TEST(E7_a_bulk_of_seventy_thousand_keeps_the_callers_order)
{
	postroom_message *messages = calloc(MANY, sizeof(*messages));
	postroom_receipt *receipts = calloc(MANY, sizeof(*receipts));
	char(*payloads)[16] = calloc(MANY, sizeof(*payloads));
	char(*names)[16] = calloc(MANY, sizeof(*names));

	CHECK(messages && receipts && payloads && names);
	fill_many(messages, payloads, names);
	begin(app);
	CHECK_INT(postroom_enqueue_many(app->box, messages, MANY, receipts), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), MANY - 1);
	CHECK_INT(receipts[MANY - 1].duplicate, 1);
	CHECK_INT(receipts[MANY - 1].differs, 1);
	CHECK_STR(receipts[MANY - 1].id, receipts[MANY - 3].id);
	CHECK_INT(receipts[MANY - 3].duplicate, 0);
	CHECK_INT(number(app, "SELECT count(*) FROM (SELECT payload::int - lag(payload::int) OVER "
			      "(ORDER BY seq) AS step FROM postroom_outbox) AS s WHERE step < 1"),
		  0);
	for (int i = 0; i < MANY; i += 9973)
		CHECK_STR(text(app, "SELECT payload FROM postroom_outbox WHERE id = '%s'",
			       receipts[i].id),
			  payloads[i]);
	free(messages);
	free(receipts);
	free(payloads);
	free(names);
}

PGSQL_TEST(E7_a_bulk_of_duplicates_names_every_first_row)
{
	static char names[KEYS][16];
	postroom_receipt *first = calloc(KEYS, sizeof(*first)),
			 *again = calloc(KEYS, sizeof(*again));
	postroom_message *messages;

	CHECK(first && again);
	for (int i = 0; i < KEYS; i++)
		snprintf(names[i], sizeof(names[i]), "k-%d", i);
	messages = keys_in_order(names, true);
	begin(app);
	CHECK_INT(postroom_enqueue_many(app->box, messages, KEYS, first), POSTROOM_OK);
	messages[7].payload = "2";
	messages[8].payload = NULL;
	messages[8].body = "1";
	messages[8].body_len = 1;
	CHECK_INT(postroom_enqueue_many(app->box, messages, KEYS, again), POSTROOM_OK);
	for (int i = 0; i < KEYS; i++) {
		CHECK_INT(first[i].duplicate, 0);
		CHECK_INT(again[i].duplicate, 1);
		CHECK_STR(again[i].id, first[i].id);
		CHECK_STR(again[i].dedupe_key, messages[i].dedupe_key);
		CHECK_MSG(again[i].differs == (i == 7 || i == 8), "message %d: differs is %d", i,
			  again[i].differs);
	}
	/* Receipts are optional. */
	CHECK_INT(postroom_enqueue_many(app->box, messages, KEYS, NULL), POSTROOM_OK);
	commit(app);
	CHECK_INT(rows("pending"), KEYS);
	free(first);
	free(again);
	free(messages);
}
