/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's filters: X1, on both tables. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

struct seen {
	char topics[200];
	char last[POSTROOM_ID_SIZE];
	int count;
};

static int see(void *context, const postroom_row *row)
{
	struct seen *seen = context;
	size_t len = strlen(seen->topics);

	snprintf(seen->topics + len, sizeof(seen->topics) - len, "%s ", row->topic);
	snprintf(seen->last, sizeof(seen->last), "%s", row->id);
	seen->count++;
	return 0;
}

static struct seen listed(const postroom_filter *filter, int32_t limit)
{
	struct seen seen = { 0 };

	CHECK_MSG(postroom_list(store, filter, limit, see, &seen) >= 0, "%s",
		  postroom_store_errmsg(store));
	return seen;
}

#define LISTED(...) listed(POSTROOM_FILTER(__VA_ARGS__), 50).topics
#define OF_INBOX(...) LISTED(.table = POSTROOM_INBOX, __VA_ARGS__)

static int64_t counted(const postroom_filter *filter, int64_t cap)
{
	int64_t count = -1;

	CHECK_MSG(postroom_count(store, filter, cap, &count) >= 0, "%s",
		  postroom_store_errmsg(store));
	return count;
}

#define COUNTED(...) counted(POSTROOM_FILTER(__VA_ARGS__), 1000)

/* Puts a dead message with this error. */
static void put_dead(const char *topic, const char *error)
{
	postroom_batch *batch;

	PUT(.topic = topic, .payload = "{}");
	batch = CLAIM(.topic = topic);
	CHECK_INT(postroom_reject(store, batch, only_item(batch), 1, error), POSTROOM_OK);
	postroom_batch_free(batch);
}

static void put_delivered(const char *topic)
{
	postroom_batch *batch;

	PUT(.topic = topic, .payload = "{}");
	batch = CLAIM(.topic = topic);
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
}

TEST(X1_messages_are_listed_by_a_part_of_their_error)
{
	put_dead("a", "Connection REFUSED by 10.0.0.1");
	put_dead("b", "no such user");
	PUT(.topic = "c", .payload = "{}");
	CHECK_STR(LISTED(.error = "connection refused"), "a ");
	CHECK_STR(LISTED(.status = "dead", .error = "REFUSED"), "a ");
	CHECK_STR(LISTED(.status = "dead", .error = "s"), "b a ");
	CHECK_STR(LISTED(.status = "dead", .error = "%"), "");
	CHECK_INT(COUNTED(.status = "dead", .error = "user"), 1);
	CHECK_STR(LISTED(.fingerprint = "Connection REFUSED by <n>.<n>.<n>.<n>"), "a ");
	CHECK_STR(LISTED(.status = "dead", .fingerprint = "Connection REFUSED"), "");
}

TEST(X1_messages_are_listed_by_the_time_of_their_creation)
{
	int64_t now_us;

	PUT(.topic = "old", .payload = "{}");
	shift("created_at", -3600);
	PUT(.topic = "new", .payload = "{}");
	now_us = database_now_us(app);
	CHECK_STR(LISTED(.created_from_us = now_us - 60 * 1000000LL), "new ");
	CHECK_STR(LISTED(.created_to_us = now_us - 60 * 1000000LL), "old ");
	CHECK_STR(LISTED(.status = "pending", .created_from_us = now_us - 7200 * 1000000LL),
		  "new old ");
	CHECK_INT(COUNTED(.created_to_us = 1), 0);
	/* From is included, to is not. */
	now_us = time_of(app, "created_at", "topic = 'new'");
	CHECK_STR(LISTED(.created_from_us = now_us), "new ");
	CHECK_STR(LISTED(.created_to_us = now_us), "old ");
}

TEST(X1_count_of_a_state_stops_at_the_cap_and_leaves_out_messages_in_flight)
{
	postroom_batch *batch;

	PUT(.topic = "flying", .payload = "{}", .key = "k");
	batch = CLAIM(.topic = "flying");
	CHECK_INT(COUNTED(.status = "pending"), 0);
	for (int i = 0; i < 5; i++) {
		PUT(.topic = "t", .payload = "{}", .key = i % 2 ? "k" : NULL);
		put_delivered("delivered");
	}
	for (int cap = 1; cap < 8; cap++) {
		CHECK_INT(counted(POSTROOM_FILTER(.status = "pending"), cap), cap < 5 ? cap : 5);
		CHECK_INT(counted(POSTROOM_FILTER(.status = "delivered"), cap), cap < 5 ? cap : 5);
	}
	for (int cap = 9; cap < 14; cap++)
		CHECK_INT(counted(POSTROOM_FILTER(0), cap), cap < 11 ? cap : 11);
	CHECK_INT(postroom_release(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_INT(counted(POSTROOM_FILTER(.status = "pending"), 5), 5);
	CHECK_INT(COUNTED(.status = "pending"), 6);
}

TEST(X1_every_state_is_listed_counted_and_paged)
{
	static const char *const states[] = { "pending", "failed", "processing", "delivered",
					      "dead" };
	struct seen first;
	postroom_batch *batch;

	for (int i = 0; i < 3; i++) {
		put_delivered("delivered");
		put_dead("dead", "x");
	}
	PUT(.topic = "failed", .payload = "{}");
	batch = CLAIM(.topic = "failed", .base_delay_ms = 3600000);
	CHECK_INT(postroom_nack(store, batch, only_item(batch), 1, "later"), POSTROOM_OK);
	postroom_batch_free(batch);
	PUT(.topic = "processing", .payload = "{}", .key = "k");
	batch = CLAIM(.topic = "processing");
	PUT(.topic = "pending", .payload = "{}");
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		struct seen seen = listed(POSTROOM_FILTER(.status = states[i]), 50);

		CHECK_MSG(strstr(seen.topics, states[i]), "%s: %s", states[i], seen.topics);
		CHECK_INT(counted(POSTROOM_FILTER(.status = states[i]), 1000), seen.count);
		first = listed(POSTROOM_FILTER(.status = states[i]), 1);
		CHECK_INT(first.count, 1);
		CHECK_INT(
			listed(POSTROOM_FILTER(.status = states[i], .after = first.last), 50).count,
			seen.count - 1);
		CHECK_INT(listed(POSTROOM_FILTER(.status = states[i], .offset = 1), 50).count,
			  seen.count - 1);
	}
	CHECK_STR(LISTED(.status = "processing"), "processing ");
	CHECK_STR(LISTED(.status = "pending"), "pending failed ");
	CHECK_INT(COUNTED(.status = "dead"), 3);
	CHECK_INT(counted(POSTROOM_FILTER(.status = "dead"), 2), 2);
	CHECK_INT(counted(POSTROOM_FILTER(0), 4), 4);
	CHECK_INT(COUNTED(.status = "dead", .older_than_ms = 3600000), 0);
	postroom_batch_free(batch);
}

TEST(X1_delivered_messages_are_listed_by_their_delivery)
{
	struct seen seen;

	put_delivered("a");
	PUT(.topic = "b", .payload = "{}");
	put_delivered("c");
	put_delivered("b2");
	/* Created before the others, delivered last. */
	postroom_batch *batch = CLAIM(.topic = "b");
	CHECK_INT(postroom_ack(store, batch, only_item(batch), 1), POSTROOM_OK);
	postroom_batch_free(batch);
	CHECK_STR(LISTED(.status = "delivered"), "b b2 c a ");
	seen = listed(POSTROOM_FILTER(.status = "delivered"), 2);
	CHECK_STR(LISTED(.status = "delivered", .after = seen.last), "c a ");
	CHECK_INT(postroom_list(store,
				POSTROOM_FILTER(.status = "delivered",
						.after = PUT(.topic = "p", .payload = "{}").id),
				5, see, &seen),
		  POSTROOM_NOT_FOUND);
}

TEST(X2_retry_and_purge_change_only_matching_messages)
{
	int64_t done = -1;

	put_dead("a", "timeout after 30 s");
	put_dead("b", "no such user");
	CHECK_INT(postroom_retry_some(store, POSTROOM_FILTER(.error = "TIMEOUT"), 10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(LISTED(.status = "pending"), "a ");
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .error = "timeout"),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 0);
	CHECK_INT(
		postroom_purge_some(store,
				    POSTROOM_FILTER(.status = "dead", .fingerprint = "no such user",
						    .created_from_us = 1),
				    10, &done),
		POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_INT(rows(NULL), 1);
}

TEST(X2_purge_of_one_id_leaves_other_states_alone)
{
	char id[POSTROOM_ID_SIZE];
	int64_t done = -1;

	put_dead("a", "x");
	put_dead("b", "x");
	snprintf(id, sizeof(id), "%s", listed(POSTROOM_FILTER(.topic = "a"), 1).last);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "delivered", .id = id), 10,
				      &done),
		  POSTROOM_OK);
	CHECK_INT(done, 0);
	CHECK_INT(postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .id = "nonsense"),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 0);
	CHECK_INT(
		postroom_purge_some(store, POSTROOM_FILTER(.status = "dead", .id = id), 10, &done),
		POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(LISTED(.status = "dead"), "b ");
}

TEST(N4_the_inbox_takes_the_same_filters)
{
	postroom_counts counts;
	int64_t done;

	sql(app, "INSERT INTO postroom_inbox (id, handler_name, topic, status, last_error) VALUES "
		 "('1', 'h', 'a', 'dead', 'Timeout 1'), ('2', 'h', 'b', 'dead', 'refused'), "
		 "('3', 'g', 'c', 'pending', NULL)");
	CHECK_STR(OF_INBOX(.error = "timeout"), "a ");
	CHECK_STR(OF_INBOX(.status = "dead", .handler = "h"), "b a ");
	CHECK_STR(OF_INBOX(.topic = "*"), "c b a ");
	CHECK_STR(OF_INBOX(.fingerprint = "Timeout <n>"), "a ");
	CHECK_INT(COUNTED(.table = POSTROOM_INBOX, .status = "dead"), 2);
	CHECK_INT(COUNTED(.table = POSTROOM_INBOX, .status = "failed"), 0);
	CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .error = "re"),
				 &counts, NULL, NULL),
		  POSTROOM_OK);
	CHECK_INT(counts.dead, 1);
	CHECK_INT(counts.pending, 0);
	CHECK_INT(postroom_retry_some(store,
				      POSTROOM_FILTER(.table = POSTROOM_INBOX, .error = "refused"),
				      10, &done),
		  POSTROOM_OK);
	CHECK_INT(done, 1);
	CHECK_STR(OF_INBOX(.status = "pending"), "b c ");
}

TEST(X1_meaningless_filters_are_refused)
{
	const postroom_filter *const wrong[] = {
		POSTROOM_FILTER(.table = (postroom_table)7),
		POSTROOM_FILTER(.handler = "h"),
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .ns = "n"),
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .after = "x"),
		POSTROOM_FILTER(.table = POSTROOM_INBOX, .status = "delivered"),
		POSTROOM_FILTER(.status = "active"),
		POSTROOM_FILTER(.created_from_us = -1),
		POSTROOM_FILTER(.created_to_us = INT64_MAX),
		POSTROOM_FILTER(.offset = -1),
	};
	int64_t count = -7;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_INT(postroom_count(store, wrong[i], 10, &count), POSTROOM_INVALID);
	CHECK_INT(postroom_count(store, POSTROOM_FILTER(0), -1, &count), POSTROOM_INVALID);
	CHECK_INT(postroom_show(store, POSTROOM_FILTER(0), see, NULL), POSTROOM_INVALID);
}

TEST(X1_stats_count_only_matching_messages)
{
	postroom_counts counts;

	put_dead("a", "timeout");
	put_dead("b", "refused");
	put_delivered("a");
	CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.topic = "a"), &counts, NULL, NULL),
		  POSTROOM_OK);
	CHECK_INT(counts.dead, 1);
	CHECK_INT(counts.delivered, 1);
	CHECK_INT(postroom_stats(store, POSTROOM_FILTER(.error = "REF"), &counts, NULL, NULL),
		  POSTROOM_OK);
	CHECK_INT(counts.dead, 1);
	CHECK_INT(counts.delivered, 0);
}
