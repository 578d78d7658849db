/* SPDX-License-Identifier: Apache-2.0 */
/* The content of large messages: exact bytes through every door, and loaded only after the claim (C5). */
#include "contract/store/jobs.h"

#include <postroom/job.h>
#include <stdlib.h>
#include <string.h>

#define SQLITE_TEST(test_name) ON_ONE(test_name, backend_sqlite)

/* Just over the threshold, and one that is not. */
#define LARGE ((size_t)300 * 1024)
#define SMALL ((size_t)200 * 1024)

/* A JSON string of so many bytes, with letters that UTF-8 and UTF-16 store differently. */
static char *new_text(size_t size)
{
	static const char part[] = "x\xc3\xa4\xe2\x82\xac";
	char *made = malloc(size + 1);

	CHECK(made);
	memset(made, 'y', size);
	for (size_t at = 1; at + sizeof(part) < size / 2; at += sizeof(part) - 1)
		memcpy(made + at, part, sizeof(part) - 1);
	made[0] = made[size - 1] = '"';
	made[size] = '\0';
	return made;
}

static char *new_bytes(size_t size)
{
	char *made = malloc(size);

	CHECK(made);
	for (size_t i = 0; i < size; i++)
		made[i] = (char)(i * 7 + i / 251);
	return made;
}

struct expected {
	const char *payload, *body;
	size_t payload_len, body_len;
	int seen;
};

static int check_row(void *context, const postroom_row *row)
{
	struct expected *expected = context;

	CHECK_INT(row->payload_len, expected->payload_len);
	CHECK(memcmp(row->payload, expected->payload, expected->payload_len) == 0);
	CHECK_INT(row->body_len, expected->body_len);
	CHECK(!expected->body == !row->body);
	CHECK(!expected->body || memcmp(row->body, expected->body, expected->body_len) == 0);
	CHECK_STR(row->headers, "{\"a\": \"b\"}");
	expected->seen++;
	return 0;
}

static void check_item(const postroom_delivery *item, const struct expected *expected)
{
	CHECK_INT(item->withheld, 0);
	CHECK_INT(item->payload_len, expected->payload_len);
	CHECK(memcmp(item->payload, expected->payload, expected->payload_len) == 0);
	CHECK_INT(item->body_len, expected->body_len);
	CHECK(!expected->body == !item->body);
	CHECK(!expected->body || memcmp(item->body, expected->body, expected->body_len) == 0);
	CHECK_STR(item->headers, "{\"a\": \"b\"}");
}

/* Through show, list, a claim, a failure, death, retry, delivery and purge. */
static void check_life(struct expected expected)
{
	postroom_receipt receipt = put_message(
		POSTROOM_MESSAGE(.topic = "t", .payload = expected.payload,
				 .payload_len = expected.payload_len, .body = expected.body,
				 .body_len = expected.body_len, .headers = "{\"a\": \"b\"}"));
	postroom_batch *batch;
	int64_t purged = 0;

	if (!expected.payload) {
		expected.payload = "null";
		expected.payload_len = 4;
	}
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = receipt.id), check_row, &expected),
		  POSTROOM_OK);
	CHECK_INT(postroom_list(store, POSTROOM_FILTER(.status = "pending"), 10, check_row,
				&expected),
		  POSTROOM_OK);
	CHECK_INT(expected.seen, 2);
	batch = CLAIM(.limit = 1);
	check_item(only_item(batch), &expected);
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = receipt.id)), POSTROOM_OK);
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = receipt.id), check_row, &expected),
		  POSTROOM_OK);
	batch = CLAIM(.limit = 1);
	check_item(only_item(batch), &expected);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = receipt.id), check_row, &expected),
		  POSTROOM_OK);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered"), 10, &purged),
		  POSTROOM_OK);
	CHECK_INT(purged, 1);
	if (backend == &backend_sqlite)
		CHECK_INT(number(app, "SELECT count(*) FROM postroom_content"), 0);
}

TEST(C5_large_content_keeps_its_bytes_from_every_entry_point)
{
	char *payload = new_text(LARGE), *body = new_bytes(LARGE), *small = new_text(SMALL);

	check_life((struct expected){ .payload = payload, .payload_len = LARGE });
	check_life((struct expected){ .body = body, .body_len = LARGE });
	check_life((struct expected){ .payload = small, .payload_len = SMALL });
	check_life((struct expected){ .body = body, .body_len = SMALL });
	free(payload);
	free(body);
	free(small);
}

TEST(E3_duplicate_of_a_large_message_is_compared_with_it)
{
	char *payload = new_text(LARGE);
	postroom_receipt second;

	PUT(.topic = "t", .payload = payload, .dedupe_key = "k");
	second = PUT(.topic = "t", .payload = payload, .dedupe_key = "k");
	CHECK_INT(second.duplicate, 1);
	CHECK_INT(second.differs, 0);
	payload[LARGE - 100] = 'z';
	CHECK_INT(PUT(.topic = "t", .payload = payload, .dedupe_key = "k").differs, 1);
	if (backend == &backend_sqlite)
		CHECK_INT(number(app, "SELECT count(*) FROM postroom_content"), 1);
	free(payload);
}

/* The headers are part of the content that a claim leaves out. */
TEST(C5_careful_claim_loads_headers_with_the_content)
{
	struct pr_claim claim = { .limit = 1, .lease_ms = 30000, .max_attempts = 10 };
	struct postroom_batch batch = { 0 };
	struct pr_arena arena = { 0 };
	struct pr_err err = { 0 };
	size_t withheld;

	PUT(.topic = "t", .payload = "[1]", .headers = "{\"a\": \"b\"}");
	CHECK_INT(pr_store_claim(store, &pr_table_outbox, &claim, &batch, &err), POSTROOM_OK);
	CHECK_INT(batch.count, 1);
	withheld = batch.items->withheld;
	CHECK(withheld > 0);
	batch.items->headers = "{}";
	CHECK_INT(store->ops->load(store, &pr_table_outbox, batch.items, SIZE_MAX, &arena, &err),
		  POSTROOM_OK);
	check_item(batch.items, &(struct expected){ .payload = "[1]", .payload_len = 3 });
	/* One that is larger than the caller has room for stays where it is. */
	CHECK_INT(store->ops->load(store, &pr_table_outbox, batch.items, 1, &arena, &err),
		  POSTROOM_BUSY);
	CHECK(batch.items->withheld > 1);
	pr_arena_release(&arena);
	pr_batch_release(&batch);
}

#define COUNT_CONTENT "SELECT count(*) FROM postroom_content"
#define BIG "json_quote(printf('%%.*c', 300000, 'x'))"

SQLITE_TEST(C5_large_content_leaves_the_row_in_the_same_statement)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', " BIG "), ('t', '1'), "
		 "('t', " BIG ")");
	CHECK_INT(number(app, COUNT_CONTENT), 2);
	CHECK_INT(number(app, "SELECT max(length(payload)) FROM postroom_outbox"), 4);
	CHECK_INT(number(app, "SELECT sum(length(payload)) FROM postroom_messages"),
		  2 * 300002 + 1);
	begin(app);
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', " BIG ")");
	rollback(app);
	CHECK_INT(number(app, COUNT_CONTENT), 2);
	/* A row that no check takes leaves nothing behind, nor does a skipped one. */
	refused(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', " BIG "), ('', " BIG
		     ")");
	refused(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '[' || " BIG ")");
	sql(app, "INSERT INTO postroom_outbox (topic, payload, id) SELECT 't', " BIG
		 ", id FROM postroom_outbox WHERE true ON CONFLICT (id) DO NOTHING");
	CHECK_INT(number(app, COUNT_CONTENT), 2);
	sql(app, "DELETE FROM postroom_outbox WHERE seq = 1");
	CHECK_INT(number(app, COUNT_CONTENT), 1);
	sql(app, "DELETE FROM postroom_outbox");
	CHECK_INT(number(app, COUNT_CONTENT), 0);
}

SQLITE_TEST(C5_large_content_is_written_once_and_not_changed)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1'), ('t', '2')");
	sql(app, "UPDATE postroom_outbox SET payload = " BIG " WHERE seq = 1");
	CHECK_INT(number(app, COUNT_CONTENT), 1);
	CHECK_INT(number(app, "SELECT length(payload) FROM postroom_messages WHERE seq = 1"),
		  300002);
	CHECK_CONTAINS(refused(app, "UPDATE postroom_outbox SET payload = '3'"),
		       "cannot be changed; delete the row and insert it again");
	CHECK_CONTAINS(refused(app, "INSERT INTO postroom_outbox (topic, payload, content) "
				    "SELECT 't', '1', content FROM postroom_outbox WHERE seq = 1"),
		       "content");
	CHECK_CONTAINS(refused(app, "INSERT INTO postroom_inbox (id, handler_name, content) "
				    "VALUES ('i', 'h', 1)"),
		       "content");
}

SQLITE_TEST(C5_jobs_keep_large_content_in_its_own_table)
{
	struct postroom_batch batch = { 0 };
	struct pr_arena arena = { 0 };
	struct pr_err err = { 0 };
	char *payload = new_text(LARGE);
	int64_t purged = 0;

	sql(app,
	    "INSERT INTO postroom_inbox (id, handler_name, payload) VALUES ('a', 'h', " BIG ")");
	INSERT_EVENTS(PR_ORDER_NONE,
		      ARRIVAL(.id = "b", .payload = { payload, LARGE }, .how = PR_INSERT_PENDING));
	/* A duplicate brings nothing. */
	INSERT_EVENTS(PR_ORDER_NONE,
		      ARRIVAL(.id = "b", .payload = { payload, LARGE }, .how = PR_INSERT_PENDING));
	CHECK_INT(number(app, COUNT_CONTENT), 2);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox WHERE payload IS NULL "
			      "AND body IS NULL AND content IS NOT NULL"),
		  2);
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "a b ");
	CHECK_INT(batch.items[1].withheld, LARGE);
	CHECK_INT(store->ops->load(store, &pr_table_inbox, &batch.items[1], LARGE, &arena, &err),
		  POSTROOM_OK);
	CHECK_INT(batch.items[1].payload_len, LARGE);
	CHECK(memcmp(batch.items[1].payload, payload, LARGE) == 0);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_INT(postroom_purge_some(
			  store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "completed"),
			  10, &purged),
		  POSTROOM_OK);
	CHECK_INT(purged, 2);
	CHECK_INT(number(app, COUNT_CONTENT), 0);
	pr_arena_release(&arena);
	pr_batch_release(&batch);
	free(payload);
}

SQLITE_TEST(C5_message_with_missing_content_fails_alone)
{
	postroom_batch *batch;

	sql(app, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', " BIG "), ('t', '1')");
	sql(app, "DELETE FROM postroom_content");
	batch = CLAIM(.limit = 10, .max_attempts = 1);
	CHECK_STR(only_item(batch)->payload, "1");
	postroom_batch_free(batch);
	CHECK_INT(rows("dead"), 1);
	CHECK_CONTAINS(text(app, "SELECT last_error FROM postroom_outbox WHERE status = 'dead'"),
		       "its content is missing");
}

/* A job whose content the database cannot hand out. */
static void submit_broken(const char *id)
{
	if (backend == &backend_sqlite) {
		sql(app,
		    "INSERT INTO postroom_inbox (id, handler_name, payload) VALUES ('%s', 'h', " BIG
		    ")",
		    id);
		sql(app, "DELETE FROM postroom_content");
		return;
	}
	sql(app, "ALTER DOMAIN postroom_payload DROP CONSTRAINT "
		 "\"payload: 64 MiB at most when printed\"");
	sql(app,
	    "INSERT INTO postroom_inbox (id, handler_name, payload) VALUES ('%s', 'h', "
	    "('[' || repeat('1e131071,', 20000) || '0]')::jsonb)",
	    id);
}

TEST(C5_job_that_cannot_be_loaded_fails_and_the_next_is_given)
{
	postroom_job *job = NULL;

	submit_broken("a");
	job_submit("b", "1");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "h", .max_attempts = 1), &job),
		  POSTROOM_OK);
	CHECK_STR(postroom_job_event(job)->id, "b");
	CHECK_STR(job_status("a"), "dead");
	CHECK_INT(postroom_job_finish(job), POSTROOM_OK);
	postroom_job_free(job);
}

/* The store has the only other session. */
#define SESSION                                                                                    \
	"SELECT max(pid) FROM pg_stat_activity WHERE datname = current_database() "                \
	"AND pid <> pg_backend_pid() AND backend_type = 'client backend'"

TEST_ON_PGSQL(D5_failed_load_keeps_the_connection)
{
	struct postroom_batch batch = { 0 };
	struct pr_arena arena = { 0 };
	struct pr_err err = { 0 };
	int64_t session;

	submit_broken("a");
	JOBS(store, &batch);
	CHECK_INT(batch.count, 1);
	session = number(app, SESSION);
	CHECK_INT(store->ops->load(store, &pr_table_inbox, batch.items, SIZE_MAX, &arena, &err),
		  POSTROOM_INVALID);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_INT(number(app, SESSION), session);
	pr_arena_release(&arena);
	pr_batch_release(&batch);
}
