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

	CHECK_INT(pr_store_collect(store, 100, &gauges, add_topic, topics, &err), POSTROOM_OK);
	CHECK_INT(gauges.pending + gauges.processing + gauges.dead + gauges.due, 0);
	CHECK_INT(gauges.oldest_age_us, -1);
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
	CHECK_MSG(pr_store_collect(store, 1000, &gauges, add_topic, topics, &err) >= 0, "%s",
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
	CHECK(gauges.table_bytes > 0 && !gauges.capped);
	CHECK(strstr(topics, "a 2 0 0 0; ") && strstr(topics, "d 0 0 0 1; "));
	CHECK(strstr(topics, "f 1 0 1 0; ") && strstr(topics, "h 1 0 0 1; "));
	CHECK_INT(pr_store_collect(store, 1, &gauges, NULL, NULL, &err), POSTROOM_OK);
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
	CHECK_INT(pr_store_collect(store, 1000, &gauges, submit_meanwhile, topics, &err),
		  POSTROOM_OK);
	CHECK_STR(topics, "a 1 0 0 0; ");
	CHECK_INT(pr_store_collect(store, 1000, &gauges, NULL, NULL, &err), POSTROOM_OK);
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
