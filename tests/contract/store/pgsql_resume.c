/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRAPS 8 and 19: a claim may start its scan at a low-water mark, but whatever
 * lies before the mark is found all the same, however busy the store is: what
 * committed late, was released, brought back, or has a head start.
 */
#include "contract/store/pgsql.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

/* While the switch is on, a due message takes long to claim. */
static void make_switch(void)
{
	sql(app, "CREATE TABLE switch (seconds double precision)");
	sql(app, "INSERT INTO switch VALUES (0)");
	sql(app, "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		 "PERFORM pg_sleep(seconds) FROM switch; RETURN NEW; END $$");
	sql(app, "CREATE TRIGGER dawdle BEFORE UPDATE ON postroom_outbox FOR EACH ROW "
		 "WHEN (OLD.status = 'pending') EXECUTE FUNCTION dawdle()");
}

static void put_newcomer(void)
{
	PUT(.topic = "new", .payload = "1");
}

/* Busy, with a head of the index that takes long to read: the mark is used as much as ever. */
static void make_head_slow(void)
{
	for (int i = 0; i < 6; i++)
		put_newcomer();
	do {
		sql(app, "UPDATE switch SET seconds = 0.5");
		put_newcomer();
		take_one();
		sql(app, "UPDATE switch SET seconds = 0");
	} while (pgsql_store(store)->path_state[PG_PATH_UNKEYED].from_resume);
	CHECK(pgsql_store(store)->path_state[PG_PATH_UNKEYED].busy);
}

/* There is always a newer message to claim; a hidden one would stay hidden forever. */
static void check_found(const char *id)
{
	do
		put_newcomer();
	while (strcmp(take_one(), id) != 0);
}

PGSQL_TEST(C3_message_with_head_start_is_found_below_resume_position)
{
	postroom_receipt early;

	make_switch();
	make_head_slow();
	early = PUT(.topic = "early", .payload = "1", .priority = 3600);
	check_found(early.id);
}

PGSQL_TEST(C3_late_commit_is_found_below_resume_position)
{
	struct session *other = join();
	postroom_receipt late;

	make_switch();
	begin(other);
	CHECK_INT(postroom_enqueue(other->box, POSTROOM_MESSAGE(.topic = "late", .payload = "1"),
				   &late),
		  POSTROOM_OK);
	make_head_slow();
	commit(other);
	check_found(late.id);
	leave(other);
}

PGSQL_TEST(C3_released_message_is_found_below_resume_position)
{
	postroom_receipt released = PUT(.topic = "released", .payload = "1", .priority = 10);
	postroom_batch *batch = claim_one();

	make_switch();
	make_head_slow();
	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	check_found(released.id);
}

PGSQL_TEST(C3_retried_dead_letter_is_found_below_resume_position)
{
	postroom_receipt dead = PUT(.topic = "dead", .payload = "1", .priority = 10);
	postroom_batch *batch = claim_one();

	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "no"), POSTROOM_OK);
	postroom_batch_free(batch);
	make_switch();
	make_head_slow();
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = dead.id)), POSTROOM_OK);
	check_found(dead.id);
}

/* One store may serve several scopes in turn: what is old in one says nothing of the other. */
PGSQL_TEST(C6_resume_position_of_one_scope_does_not_apply_to_another)
{
	postroom_receipt other = PUT(.topic = "other", .payload = "1", .priority = 3600);
	postroom_batch *batch;

	for (int i = 0; i < 10; i++)
		put_newcomer();
	for (int i = 0; i < 5; i++)
		postroom_batch_free(CLAIM(.topic = "new", .limit = 1));
	batch = CLAIM(.topic = "other", .limit = 1);
	CHECK_STR(only_item(batch)->id, other.id);
	postroom_batch_free(batch);
}

/* Without anything newer the mark is no reason to find nothing. */
PGSQL_TEST(C3_empty_scan_from_resume_position_is_followed_by_one_from_head)
{
	postroom_receipt early;

	make_switch();
	make_head_slow();
	for (;;) {
		postroom_batch *batch = CLAIM(.limit = 1);
		size_t count = count_of(batch);

		postroom_batch_free(batch);
		if (count == 0)
			break;
	}
	early = PUT(.topic = "early", .payload = "1", .priority = 3600);
	CHECK_STR(take_one(), early.id);
}
