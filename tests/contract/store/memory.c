/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of dedupe keys names only messages that exist or existed (E3). */
#include "contract/store/pgsql.h"

#define ID "6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b"
#define KEYED POSTROOM_MESSAGE(.topic = "t", .payload = "2", .dedupe_key = "k")

/* The next message with the key is new, and the one after it a duplicate. */
static void check_free(void)
{
	postroom_receipt first = put_message(KEYED), second = put_message(KEYED);

	CHECK_INT(first.duplicate, 0);
	CHECK_INT(second.duplicate, 1);
	CHECK_STR(second.id, first.id);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE dedupe_key = 'k'"), 1);
}

static void put_with_id(void)
{
	sql(app, "INSERT INTO postroom_outbox (id, topic, payload) VALUES ('" ID "', 't', '1')");
}

#define SKIPPED                                                                                    \
	"INSERT INTO postroom_outbox (id, topic, payload, dedupe_key) "                            \
	"VALUES ('" ID "', 't', '2', 'k') ON CONFLICT (id) DO NOTHING"

TEST(E3_skipped_insert_does_not_take_its_dedupe_key)
{
	put_with_id();
	sql(app, SKIPPED);
	check_free();
	/* Also in the same transaction, and repeatedly. */
	sql(app, "DELETE FROM postroom_outbox WHERE dedupe_key = 'k'");
	sql(app, "DELETE FROM postroom_dedupe");
	begin(app);
	sql(app, SKIPPED);
	sql(app, SKIPPED);
	CHECK_INT(postroom_enqueue(app->box, KEYED, NULL), POSTROOM_OK);
	CHECK_INT(postroom_enqueue(app->box, KEYED, NULL), POSTROOM_DUPLICATE);
	sql(app, SKIPPED);
	commit(app);
	CHECK_INT(postroom_enqueue(app->box, KEYED, NULL), POSTROOM_DUPLICATE);
}

TEST_ON_PGSQL(E3_insert_skipped_by_another_trigger_does_not_take_its_dedupe_key)
{
	sql(app,
	    "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'");
	sql(app, "CREATE TRIGGER zz_skip BEFORE INSERT ON postroom_outbox FOR EACH ROW "
		 "WHEN (NEW.dedupe_key = 'k') EXECUTE FUNCTION skip()");
	sql(app, "INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '1', 'k'), "
		 "('t', '1', 'k'), ('t', '1', 'other')");
	CHECK_INT(rows(NULL), 1);
	sql(app, "DROP TRIGGER zz_skip ON postroom_outbox");
	check_free();
}

TEST_ON_PGSQL(E3_skipped_insert_frees_its_key_for_function_and_bulk)
{
	const postroom_message both[] = { *KEYED, *KEYED };
	postroom_receipt receipts[2];

	put_with_id();
	sql(app, SKIPPED);
	begin(app);
	CHECK_INT(postroom_enqueue_many(app->box, both, 2, receipts), POSTROOM_OK);
	CHECK_INT(receipts[0].duplicate, 0);
	CHECK_INT(receipts[1].duplicate, 1);
	CHECK_STR(receipts[1].id, receipts[0].id);
	rollback(app);
	CHECK_STR(text(app, "SELECT duplicate FROM postroom_enqueue('t', '1', dedupe_key => 'k')"),
		  "f");
	CHECK_STR(text(app, "SELECT duplicate FROM postroom_enqueue('t', '1', dedupe_key => 'k')"),
		  "t");
}

/* Two producers want the key that a skipped message has left behind. */
TEST_ON_PGSQL(E3_key_of_a_skipped_insert_is_used_by_one_of_two_producers)
{
	struct session *eye = join(), *other = join();
	struct producer producer = { .session = other, .messages = KEYED, .count = 1 };
	postroom_receipt first;

	for (int commits = 0; commits < 2; commits++) {
		sql(app, "DELETE FROM postroom_outbox");
		sql(app, "DELETE FROM postroom_dedupe");
		put_with_id();
		sql(app, SKIPPED);
		begin(app);
		CHECK_INT(postroom_enqueue(app->box, KEYED, &first), POSTROOM_OK);
		begin(other);
		start_producer(&producer);
		await_blocked(eye, other);
		if (commits)
			commit(app);
		else
			rollback(app);
		end_producer(&producer);
		CHECK_INT(producer.status, commits ? POSTROOM_DUPLICATE : POSTROOM_OK);
		if (commits)
			CHECK_STR(producer.receipt.id, first.id);
		commit(other);
		CHECK_INT(
			number(app, "SELECT count(*) FROM postroom_outbox WHERE dedupe_key = 'k'"),
			1);
	}
	leave(other);
	leave(eye);
}

TEST_ON_PGSQL(E3_key_of_a_written_message_is_final)
{
	put_message(KEYED);
	sql(app, "DELETE FROM postroom_outbox");
	CHECK_CONTAINS(refused(app, "UPDATE postroom_dedupe SET written = false"),
		       "written message");
	CHECK_CONTAINS(refused(app, "UPDATE postroom_dedupe SET id = '" ID "'"), "written message");
	CHECK_INT(put_message(KEYED).duplicate, 1);
}

/* The dedupe key is remembered for the retention only, whatever created_at the producer sets. */
TEST(E3_dedupe_memory_does_not_follow_a_created_at_given_by_hand)
{
	static const char *const times[] = { "1970-01-02", "9000-01-01" };

	for (size_t i = 0; i < 2; i++) {
		const char *quote = backend == &backend_sqlite ? "unixepoch('%s') * 1000000"
							       : "'%s'";
		char time[100];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(time, sizeof(time), quote, times[i]);
#pragma GCC diagnostic pop
		sql(app,
		    "INSERT INTO postroom_outbox (topic, payload, dedupe_key, created_at, status, "
		    "delivered_at) VALUES ('t', '1', 'k%zu', %s, 'delivered', %s)",
		    i, time,
		    times[i][0] == '1'		 ? time
		    : backend == &backend_sqlite ? "1"
						 : "'1970-01-02'");
	}
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox"), 2);
	{
		int64_t purged = 0;

		CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered"), 10,
					      &purged),
			  POSTROOM_OK);
		CHECK_INT(purged, 2);
	}
	CHECK_INT(
		number(app,
		       backend == &backend_sqlite
			       ? "SELECT count(*) FROM postroom_dedupe WHERE abs(created_at - "
				 "unixepoch() * 1000000) < 3600000000"
			       : "SELECT count(*) FROM postroom_dedupe WHERE created_at "
				 "BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'"),
		2);
}
