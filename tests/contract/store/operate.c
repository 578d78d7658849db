/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's side: X1, X2, listing, retry, purge, counts; and opening a store. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

#define TENANT "0f5a3c1e-7b2d-4e9a-8c11-2233445566aa"

/* Leaves a message in a state and returns its id. */
static const char *put_in_state(const char *state, const char *topic, const char *key)
{
	static char ids[8][POSTROOM_ID_SIZE];
	static unsigned next;
	char *id = ids[next++ % 8];
	postroom_receipt receipt = PUT(.topic = topic, .payload = "{}", .key = key);
	postroom_batch *batch;

	memcpy(id, receipt.id, sizeof(receipt.id));
	if (strcmp(state, "pending") == 0)
		return id;
	batch = CLAIM(.topic = topic);
	CHECK_STR(only_item(batch)->id, id);
	if (strcmp(state, "delivered") == 0)
		CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	else if (strcmp(state, "dead") == 0)
		CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, "poison"),
			  POSTROOM_OK);
	else if (strcmp(state, "failed") == 0)
		CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "later"), POSTROOM_OK);
	postroom_batch_free(batch);
	return id;
}

struct listing {
	int count;
	int stop_after;
	char ids[64][POSTROOM_ID_SIZE];
	char status[20];
	char error[200];
	char payload[200];
};

static int collect(void *context, const postroom_row *row)
{
	struct listing *listing = context;

	CHECK(listing->count < 64);
	snprintf(listing->ids[listing->count++], POSTROOM_ID_SIZE, "%s", row->id);
	snprintf(listing->status, sizeof(listing->status), "%s", row->status);
	snprintf(listing->error, sizeof(listing->error), "%s",
		 row->last_error ? row->last_error : "(null)");
	snprintf(listing->payload, sizeof(listing->payload), "%s", row->payload);
	return listing->stop_after && listing->count == listing->stop_after;
}

static struct listing list(const postroom_filter *filter, int32_t limit)
{
	struct listing listing = { 0 };

	CHECK_INT(postroom_list(store, filter, limit, collect, &listing), POSTROOM_OK);
	return listing;
}

#define LIST(...) list(POSTROOM_FILTER(__VA_ARGS__), 50)

TEST(X1_dead_messages_stay_and_are_listed_and_shown)
{
	const char *id = put_in_state("dead", "t", NULL);
	struct listing listing;
	int64_t dead_letters;

	MAKE_DUE();
	postroom_batch_free(CLAIM());
	CHECK_INT(postroom_sweep(store, 1, &dead_letters), POSTROOM_OK);
	listing = LIST(.status = "dead");
	CHECK_INT(listing.count, 1);
	CHECK_STR(listing.ids[0], id);
	memset(&listing, 0, sizeof(listing));
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(.id = id), collect, &listing), POSTROOM_OK);
	CHECK_STR(listing.status, "dead");
	CHECK_STR(listing.error, "poison");
	CHECK_STR(listing.payload, "{}");
}

TEST(X1_retry_resets_attempts_and_keeps_the_last_error)
{
	const char *id = put_in_state("dead", "t", NULL);
	int64_t before;
	postroom_batch *batch;

	shift("updated_at", -1000);
	shift("next_attempt_at", 100000);
	before = database_now_us(app);
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = id)), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT status FROM postroom_outbox"), "pending");
	CHECK_INT(number(app, "SELECT attempts FROM postroom_outbox"), 0);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "poison");
	CHECK_STR(text(app, "SELECT id FROM postroom_outbox"), id);
	CHECK(time_of(app, "updated_at", "true") >= before - 2000);
	batch = claim_one();
	CHECK_INT(only_item(batch)->attempt, 1);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT last_error FROM postroom_outbox"), "(null)");
	postroom_batch_free(batch);
}

TEST(X1_retried_message_moves_to_the_end_of_its_key)
{
	const char *id = put_in_state("dead", "t", "k");

	PUT(.topic = "t", .payload = "2", .key = "k");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = id)), POSTROOM_OK);
	CHECK_STR(text(app, "SELECT id FROM postroom_outbox ORDER BY seq DESC LIMIT 1"), id);
	PUT(.topic = "t", .payload = "3", .key = "k");
	CHECK_INT(number(app, "SELECT count(DISTINCT seq) FROM postroom_outbox"), 3);
	CHECK_STR(text(app, "SELECT payload FROM postroom_outbox ORDER BY seq DESC LIMIT 1"), "3");
}

TEST(X1_only_dead_letters_are_retried)
{
	static const char *const states[] = { "pending", "failed", "processing", "delivered" };

	for (size_t i = 0; i < 4; i++) {
		const char *id = put_in_state(states[i], states[i], NULL);

		CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.id = id)), POSTROOM_NOT_FOUND);
		CHECK_CONTAINS(postroom_store_errmsg(store), "dead");
	}
	CHECK_INT(postroom_retry(store,
				 POSTROOM_FILTER(.id = "018f0000-0000-7000-8000-000000000000")),
		  POSTROOM_NOT_FOUND);
	CHECK_CONTAINS(postroom_store_errmsg(store), "018f0000-0000-7000-8000-000000000000");
	CHECK(postroom_retry(store, POSTROOM_FILTER(.id = "nonsense")) < 0);
	CHECK_INT(rows("pending"), 2);
	CHECK_INT(rows("processing"), 1);
	CHECK_INT(rows("delivered"), 1);
}

TEST(X1_many_messages_are_retried_by_filter_in_small_batches)
{
	int64_t done = -1;

	for (int i = 0; i < 5; i++)
		put_in_state("dead", "a", NULL);
	put_in_state("dead", "b", NULL);
	put_in_state("delivered", "a", NULL);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.topic = "a"), 3, &done), POSTROOM_OK);
	CHECK_INT(done, 3);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.topic = "a"), 3, &done), POSTROOM_OK);
	CHECK_INT(done, 2);
	CHECK_INT(rows("pending"), 5);
	CHECK_INT(rows("dead"), 1);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT sum(attempts) FROM postroom_outbox WHERE status = 'pending'"),
		  0);
}

/* Ids made within a millisecond are in no order. */
TEST_ON_PGSQL(X1_dead_letters_of_a_key_are_retried_in_order)
{
	int64_t done = -1;

	for (int i = 0; i < 3; i++)
		put_in_state("dead", "t", "k");
	sql(app, "UPDATE postroom_outbox SET payload = to_jsonb(seq), "
		 "id = ('01900000-0000-7000-8000-00000000000' || 9 - seq)::uuid");
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(0), 10, &done), POSTROOM_OK);
	CHECK_INT(done, 3);
	CHECK_STR(text(app, "SELECT string_agg(payload::text, ' ' ORDER BY seq) "
			    "FROM postroom_outbox"),
		  "1 2 3");
}

TEST(X1_messages_that_became_dead_since_are_not_retried)
{
	int64_t done = -1;

	put_in_state("dead", "old", NULL);
	shift("updated_at", -3600);
	put_in_state("dead", "new", NULL);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.older_than_ms = 1800000), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(text(app, "SELECT topic FROM postroom_outbox WHERE status = 'dead'"), "new");
}

/* A clock was set back: what is of any age does not have to wait until it is there again. */
TEST(X1_message_with_future_timestamp_is_retried_and_purged)
{
	struct pr_err err = { 0 };
	int64_t done = -1;

	put_in_state("dead", "a", NULL);
	shift("updated_at", 3600);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .older_than_ms = 1),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 0);
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(0), 10, &done), POSTROOM_OK);
	CHECK_INT(done, 1);
	put_in_state("dead", "b", NULL);
	put_in_state("delivered", "c", NULL);
	shift("created_at", 3600);
	shift("updated_at", 3600);
	shift("delivered_at", 3600);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(rows(NULL), 1);
	sql(app, "INSERT INTO postroom_dedupe (namespace, topic, dedupe_key, id, created_at) "
		 "SELECT namespace, topic, 'k', id, created_at FROM postroom_outbox");
	CHECK(store->ops->purge(store,
				&(struct pr_purge){ .of = PR_PURGE_DEDUPE_KEYS,
						    .filter = POSTROOM_FILTER(.older_than_ms = 1),
						    .limit = 10 },
				&done, &err) >= 0);
	CHECK_INT(done, 0);
	CHECK(store->ops->purge(store,
				&(struct pr_purge){ .of = PR_PURGE_DEDUPE_KEYS,
						    .filter = POSTROOM_FILTER(.older_than_ms = 0),
						    .limit = 10 },
				&done, &err) >= 0);
	CHECK_INT(done, 1);
}

TEST(X1_listing_is_newest_first_with_filters_and_pages)
{
	char ids[7][POSTROOM_ID_SIZE];
	struct listing listing;

	for (int i = 0; i < 7; i++) {
		postroom_receipt receipt = PUT(.topic = i % 2 ? "odd" : "even", .payload = "{}",
					       .ns = i == 6 ? "other" : NULL,
					       .key = i == 3 ? "k" : NULL,
					       .tenant_id = i == 5 ? TENANT : NULL);

		memcpy(ids[i], receipt.id, sizeof(ids[i]));
	}
	listing = LIST(0);
	CHECK_INT(listing.count, 7);
	for (int i = 0; i < 7; i++)
		CHECK_STR(listing.ids[i], ids[6 - i]);
	listing = list(POSTROOM_FILTER(0), 3);
	CHECK_INT(listing.count, 3);
	listing = list(POSTROOM_FILTER(.after = listing.ids[2]), 3);
	CHECK_INT(listing.count, 3);
	CHECK_STR(listing.ids[0], ids[3]);
	CHECK_INT(LIST(.topic = "odd").count, 3);
	CHECK_INT(LIST(.topic = "*e*").count, 4);
	CHECK_INT(LIST(.ns = "other").count, 1);
	CHECK_INT(LIST(.tenant_id = TENANT).count, 1);
	CHECK_INT(LIST(.key = "k").count, 1);
	CHECK_INT(LIST(.status = "pending", .topic = "odd", .key = "k").count, 1);
	CHECK_INT(LIST(.status = "dead").count, 0);
	CHECK_INT(postroom_list(store,
				POSTROOM_FILTER(.after = "018f0000-0000-7000-8000-000000000000"), 3,
				collect, &listing),
		  POSTROOM_NOT_FOUND);
}

TEST(X1_listing_by_status_distinguishes_failed_from_new)
{
	const char *failed = put_in_state("failed", "a", NULL);
	struct listing listing;

	put_in_state("processing", "b", NULL);
	put_in_state("delivered", "c", NULL);
	put_in_state("dead", "d", NULL);
	put_in_state("pending", "e", NULL);
	listing = LIST(.status = "failed");
	CHECK_INT(listing.count, 1);
	CHECK_STR(listing.ids[0], failed);
	CHECK_INT(LIST(.status = "pending").count, 2);
	CHECK_INT(LIST(.status = "processing").count, 1);
	CHECK_INT(LIST(.status = "delivered").count, 1);
	CHECK_INT(LIST(.status = "dead").count, 1);
	CHECK_INT(postroom_list(store, POSTROOM_FILTER(.status = "lost"), 5, collect, &listing),
		  POSTROOM_INVALID);
}

TEST(X1_a_listing_ends_when_its_reader_has_enough)
{
	struct listing listing = { .stop_after = 2 };

	for (int i = 0; i < 5; i++)
		put_in_state("pending", "t", NULL);
	CHECK(postroom_list(store, POSTROOM_FILTER(0), 50, collect, &listing) >= 0);
	CHECK_INT(listing.count, 2);
	PUT(.topic = "t", .payload = "{}");
	CHECK_INT(LIST(0).count, 6);
}

TEST(X1_show_of_an_unknown_id_is_not_found)
{
	struct listing listing = { 0 };

	CHECK_INT(postroom_show(store,
				POSTROOM_FILTER(.id = "018f0000-0000-7000-8000-000000000000"),
				collect, &listing),
		  POSTROOM_NOT_FOUND);
	CHECK_INT(listing.count, 0);
}

TEST(X2_purge_deletes_old_messages_in_small_batches)
{
	int64_t done = -1;

	for (int i = 0; i < 10; i++)
		put_in_state("delivered", "t", NULL);
	shift("delivered_at", -3600);
	put_in_state("delivered", "t", NULL);
	put_in_state("dead", "t", NULL);
	put_in_state("pending", "u", NULL);
	CHECK_INT(postroom_purge_some(
			  store, POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1800000),
			  4, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 4);
	CHECK_INT(rows("delivered"), 7);
	CHECK_INT(postroom_purge_some(
			  store, POSTROOM_FILTER(.status = "delivered", .older_than_ms = 1800000),
			  100, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 6);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(rows("dead"), 1);
	CHECK_INT(rows("pending"), 1);
}

TEST(X2_purge_respects_its_filters)
{
	int64_t done = -1;

	put_in_state("dead", "a", NULL);
	put_in_state("dead", "b", NULL);
	put_in_state("delivered", "a", NULL);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .topic = "a"), 100,
				      &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(rows("dead"), 1);
	CHECK_INT(rows("delivered"), 1);
}

TEST(X2_unfinished_messages_are_never_purged)
{
	static const char *const wrong[] = { "pending", "processing", "failed", "" };
	int64_t done = -1;

	put_in_state("pending", "a", NULL);
	put_in_state("processing", "b", NULL);
	put_in_state("failed", "c", NULL);
	for (size_t i = 0; i < 4; i++)
		CHECK_INT(
			postroom_purge_some(store, POSTROOM_FILTER(.status = wrong[i]), 10, &done),
			POSTROOM_INVALID);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(0), 10, &done), POSTROOM_INVALID);
	CHECK_INT(rows(NULL), 3);
}

static int64_t forget(int64_t older_than_ms)
{
	struct pr_err err = { 0 };
	int64_t done = -1;

	CHECK_MSG(
		store->ops->purge(store,
				  &(struct pr_purge){
					  .of = PR_PURGE_DEDUPE_KEYS,
					  .filter = POSTROOM_FILTER(.older_than_ms = older_than_ms),
					  .limit = 10 },
				  &done, &err) >= 0,
		"%s", err.text);
	return done;
}

TEST(X2_age_out_of_range_is_refused_and_deletes_nothing)
{
	static const int64_t ages_ms[] = { -1, INT64_MIN, INT64_MAX, 110000000LL * 86400000 };
	int64_t done = 0;

	put_in_state("delivered", "t", NULL);
	for (size_t i = 0; i < sizeof(ages_ms) / sizeof(ages_ms[0]); i++) {
		const postroom_filter *old = POSTROOM_FILTER(.status = "delivered",
							     .older_than_ms = ages_ms[i]);

		CHECK_INT(postroom_purge_some(store, old, 10, &done), POSTROOM_INVALID);
		CHECK_CONTAINS(postroom_store_errmsg(store), "older_than_ms");
		CHECK_INT(postroom_retry_some(store, old, 10, &done), POSTROOM_INVALID);
		CHECK_INT(postroom_purge_some(store,
					      POSTROOM_FILTER(.table = POSTROOM_INBOX,
							      .status = "dead",
							      .older_than_ms = ages_ms[i]),
					      10, &done),
			  POSTROOM_INVALID);
		CHECK_CONTAINS(postroom_store_errmsg(store), "older_than_ms");
	}
	CHECK_INT(done, 0);
	CHECK_INT(rows("delivered"), 1);
}

/* TRAPS 27: the memory of a key outlives its message, for every way to enqueue. */
TEST(X2_purged_key_is_a_duplicate_until_the_dedupe_retention_ends)
{
	postroom_receipt first = PUT(.topic = "t", .payload = "1", .dedupe_key = "k"), again;
	int64_t done = -1;
	postroom_batch *batch = claim_one();

	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .dedupe_key = "k").duplicate, 1);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(rows(NULL), 0);
	again = PUT(.topic = "t", .payload = "1", .dedupe_key = "k");
	CHECK_INT(again.duplicate, 1);
	CHECK_STR(again.id, first.id);
	sql(app, "INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '1', 'k')");
	CHECK_INT(rows(NULL), 0);
	CHECK_INT(PUT(.topic = "other", .payload = "1", .dedupe_key = "k").duplicate, 0);
	CHECK_INT(forget(3600 * 1000), 0);
	CHECK_INT(forget(0), 1);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .dedupe_key = "k").duplicate, 0);
}

TEST(E3_key_is_remembered_while_its_message_exists)
{
	PUT(.topic = "t", .payload = "1", .dedupe_key = "k");
	CHECK_INT(forget(0), 0);
	CHECK_INT(PUT(.topic = "t", .payload = "1", .dedupe_key = "k").duplicate, 1);
}

struct by_topic {
	int topics;
	postroom_counts total;
};

static void add_up(void *context, const char *ns, const char *topic, const postroom_counts *counts)
{
	struct by_topic *sum = context;

	CHECK_STR(ns, "default");
	CHECK(strlen(topic) > 0);
	sum->topics++;
	sum->total.pending += counts->pending;
	sum->total.processing += counts->processing;
	sum->total.failed_pending += counts->failed_pending;
	sum->total.delivered += counts->delivered;
	sum->total.dead += counts->dead;
}

TEST(M1_counts_are_exact_and_add_up_by_topic)
{
	postroom_counts counts;
	struct by_topic sum = { 0 };

	put_in_state("failed", "a", NULL);
	put_in_state("processing", "b", NULL);
	put_in_state("delivered", "c", NULL);
	put_in_state("delivered", "c", NULL);
	put_in_state("dead", "d", NULL);
	put_in_state("pending", "e", NULL);
	put_in_state("pending", "e", NULL);
	CHECK_INT(postroom_stats(store, NULL, &counts, add_up, &sum), POSTROOM_OK);
	CHECK_INT(counts.pending, 3);
	CHECK_INT(counts.failed_pending, 1);
	CHECK_INT(counts.processing, 1);
	CHECK_INT(counts.delivered, 2);
	CHECK_INT(counts.dead, 1);
	CHECK_INT(sum.topics, 5);
	CHECK_INT(sum.total.pending, 3);
	CHECK_INT(sum.total.failed_pending, 1);
	CHECK_INT(sum.total.processing, 1);
	CHECK_INT(sum.total.delivered, 2);
	CHECK_INT(sum.total.dead, 1);
}

/* TRAPS 34 */
TEST(M1_oldest_age_excludes_scheduled_messages)
{
	postroom_counts counts;

	CHECK_INT(postroom_stats(store, NULL, &counts, NULL, NULL), POSTROOM_OK);
	CHECK_INT(counts.oldest_age_us, -1);
	PUT(.topic = "t", .payload = "1", .delay_ms = 3600000);
	CHECK_INT(postroom_stats(store, NULL, &counts, NULL, NULL), POSTROOM_OK);
	CHECK_INT(counts.oldest_age_us, -1);
	PUT(.topic = "t", .payload = "1");
	shift("created_at", -100);
	shift("next_attempt_at", -100);
	CHECK_INT(postroom_stats(store, NULL, &counts, NULL, NULL), POSTROOM_OK);
	CHECK(counts.oldest_age_us >= 100000000 - 2000);
}

TEST(U1_repeated_open_changes_nothing)
{
	PUT(.topic = "t", .payload = "1");
	for (int i = 0; i < 3; i++)
		postroom_store_close(open_store());
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_migrations"),
		  number(app, "SELECT count(DISTINCT version) FROM postroom_migrations"));
	CHECK_INT(rows("pending"), 1);
}

static void open_and_enqueue(void *context, int index)
{
	postroom_store *mine;
	struct session *session;

	(void)context, (void)index;
	backend->make_tables(url);
	mine = open_store();
	session = join();
	begin(session);
	CHECK_INT(postroom_enqueue(session->box, POSTROOM_MESSAGE(.topic = "t", .payload = "1"),
				   NULL),
		  POSTROOM_OK);
	commit(session);
	leave(session);
	postroom_store_close(mine);
}

TEST(U1_concurrent_creation_of_tables_succeeds)
{
	/* Another database, which none of them finds ready. */
	backend->new_database(url);
	in_parallel(6, open_and_enqueue, NULL);
	CHECK_INT(rows("pending"), 6);
}

static void add_later_migration(int version, int compatible_with, const char *applied_by)
{
	sql(app,
	    "INSERT INTO postroom_migrations (version, name, applied_at, applied_by, "
	    "compatible_with) "
	    "SELECT %d, 'later', applied_at, '%s', %d FROM postroom_migrations WHERE version = 1",
	    version, applied_by, compatible_with);
}

TEST(U1_newer_incompatible_schema_is_refused_and_left_alone)
{
	postroom_store *newer = NULL;

	PUT(.topic = "t", .payload = "1");
	/* The one that excludes this program names the version to install, not the last one. */
	add_later_migration(1001, 1001, "7.8.9");
	add_later_migration(1002, 1, "9.9.9");
	CHECK_INT(postroom_store_open(url, &newer), POSTROOM_SCHEMA);
	if (newer)
		CHECK_CONTAINS(postroom_store_errmsg(newer), "install postroom 7.8.9 or newer");
	postroom_store_close(newer);
	CHECK_INT(rows("pending"), 1);
}

TEST(U1_newer_compatible_schema_is_used)
{
	postroom_store *newer;
	postroom_batch *batch;

	PUT(.topic = "t", .payload = "1");
	add_later_migration(1001, 1, "7.8.9");
	newer = open_store();
	batch = claim_from(newer, POSTROOM_CLAIM(0));
	CHECK_INT(postroom_ack(newer, batch, items_of(batch, 1), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	postroom_store_close(newer);
	CHECK_INT(rows("delivered"), 1);
	CHECK_INT(number(app, "SELECT max(version) FROM postroom_migrations"), 1001);
}
