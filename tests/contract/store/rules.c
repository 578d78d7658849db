/* SPDX-License-Identifier: Apache-2.0 */
/* Rules: which of the messages in an outbox are a store's own, the others being another sink's. */
#include "contract/store/backend.h"

#include "store/store.h"

#define RULES(...)                                                                                 \
	(&(const struct pr_rules){ (const struct pr_rule[]){ __VA_ARGS__ },                        \
				   sizeof((const struct pr_rule[]){ __VA_ARGS__ }) /               \
					   sizeof(struct pr_rule) })

static struct postroom_store *open_with(const struct pr_rules *rules)
{
	const struct pr_store_config config = { .url = url,
						.busy_wait_ms = 10000,
						.rules = *rules };
	struct postroom_store *opened = NULL;
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_open(&config, &opened, &err) >= 0, "%s", err.text);
	return opened;
}

static void compare(const char *got, const char *expected, const char *doing)
{
	CHECK_MSG(strcmp(got, expected) == 0, "%s: \"%s\" instead of \"%s\"", doing, got, expected);
}

/* The payloads, one digit each, of the messages that a store with these rules claims and releases. */
static const char *claimed(const struct pr_rules *rules)
{
	static char seen[1000];
	struct postroom_store *own = open_with(rules);
	postroom_batch *batch = claim_from(own, POSTROOM_CLAIM(.limit = 100));
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);
	bool has[10] = { false };
	size_t used = 0;

	for (size_t i = 0; i < count; i++)
		has[items[i].payload[0] - '0'] = true;
	for (size_t i = 0; i < 10; i++) {
		if (has[i])
			seen[used++] = (char)('0' + i);
	}
	seen[used] = '\0';
	CHECK_INT(postroom_release(own, batch, items, count), POSTROOM_OK);
	postroom_batch_free(batch);
	pr_store_close(own);
	return seen;
}

#define CLAIMS(expected, ...) compare(claimed(RULES(__VA_ARGS__)), expected, #__VA_ARGS__)

static struct pr_unrouted unrouted(const struct pr_rules *rules, int32_t limit)
{
	struct postroom_store *own = open_with(rules);
	struct pr_unrouted found = { 0 };
	struct pr_err err = { 0 };

	CHECK_MSG(pr_store_unrouted(own, &pr_table_outbox, &(struct pr_scope){ 0 }, limit, &found,
				    &err) >= 0,
		  "%s", err.text);
	pr_store_close(own);
	return found;
}

static void put_four(void)
{
	PUT(.topic = "orders.created", .payload = "1");
	PUT(.topic = "orders.paid", .payload = "2", .ns = "billing", .key = "k");
	PUT(.topic = "users.created", .payload = "3", .ns = "billing");
	PUT(.topic = "users.gone", .payload = "4", .key = "k");
}

TEST(C6_first_matching_rule_applies)
{
	put_four();
	CLAIMS("12", { .topic = "orders.*", .mine = true });
	CLAIMS("23", { .ns = "billing", .mine = true });
	CLAIMS("3", { .ns = "billing", .topic = "users.*", .mine = true });
	CLAIMS("3", { .topic = "orders.*" }, { .ns = "billing", .mine = true });
	CLAIMS("34", { .topic = "orders.*" }, { .mine = true });
	CLAIMS("134", { .ns = "billing", .topic = "orders.*" }, { .topic = "*", .mine = true });
	CLAIMS("124", { .topic = "*.paid", .mine = true }, { .ns = "billing" }, { .mine = true });
	CLAIMS("", { .mine = false }, { .mine = true });
	CLAIMS("", { .ns = "bill", .mine = true }, { .topic = "orders", .mine = true });
	compare(claimed(&(const struct pr_rules){ 0 }), "1234", "no rules");
}

TEST(C6_two_stores_with_rules_claim_each_message_once)
{
	struct postroom_store *first, *second;
	postroom_batch *batch;

	put_four();
	first = open_with(RULES({ .topic = "orders.*", .mine = true }));
	second = open_with(RULES({ .topic = "orders.*" }, { .mine = true }));
	batch = claim_from(first, POSTROOM_CLAIM(.limit = 100));
	items_of(batch, 2);
	postroom_batch_free(batch);
	/* Where lanes are leased the lanes of the others may have to wait. */
	if (!backend->lanes) {
		batch = claim_from(second, POSTROOM_CLAIM(.limit = 100));
		items_of(batch, 2);
		postroom_batch_free(batch);
		CHECK_INT(rows("pending"), 0);
	}
	pr_store_close(first);
	pr_store_close(second);
}

TEST(C6_rule_text_is_matched_literally)
{
	static const char *const names[] = { "a?c", "a_c",  "a%c",     "a[b]c",	   "a\\c",
					     "a'c", "a\"c", "{table}", "{schema}", "a\\'; --" };
	char payload[2] = "0";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		payload[0] = (char)('0' + i);
		PUT(.topic = names[i], .ns = names[i], .payload = payload);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		payload[0] = (char)('0' + i);
		CLAIMS(payload, { .topic = names[i], .mine = true });
		CLAIMS(payload, { .ns = names[i], .mine = true });
		CLAIMS(payload, { .ns = names[i], .topic = names[i], .mine = true });
	}
	CLAIMS("01234569", { .topic = "a*c", .mine = true }, { .topic = "a\\*", .mine = true });
	CLAIMS("", { .topic = "x' OR true --", .mine = true }, { .ns = "' OR ''='", .mine = true });
}

TEST(C6_unrouted_messages_are_counted_up_to_a_limit)
{
	struct pr_unrouted found;

	put_four();
	found = unrouted(
		RULES({ .topic = "orders.*", .mine = true }, { .topic = "*.gone", .mine = true }),
		1000);
	CHECK_INT(found.count, 1);
	CHECK_STR(found.ns, "billing");
	CHECK_STR(found.topic, "users.created");
	CHECK_INT(unrouted(RULES({ .ns = "unused", .mine = true }), 1000).count, 4);
	CHECK_INT(unrouted(RULES({ .ns = "unused", .mine = true }), 3).count, 3);
	found = unrouted(RULES({ .topic = "*s.*", .mine = true }), 1000);
	CHECK_INT(found.count, 0);
	CHECK_STR(found.topic, "");
	CHECK_INT(unrouted(&(const struct pr_rules){ 0 }, 1000).count, 0);
	/* Neither what is held behind its key is forgotten, nor what failed. */
	PUT(.topic = "users.gone", .payload = "5", .key = "k");
	sql(app, "UPDATE postroom_outbox SET state = 'scheduled' WHERE topic = 'users.created'");
	CHECK_INT(unrouted(RULES({ .topic = "orders.*", .mine = true }), 1000).count, 3);
}

TEST(C6_expired_leases_of_other_routes_are_not_reclaimed)
{
	struct postroom_store *own = open_with(RULES({ .topic = "mine", .mine = true }));
	const struct pr_claim claim = {
		.limit = 10, .max_bytes = 1 << 20, .max_attempts = 1, .lease_ms = 1000
	};
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	PUT(.topic = "mine", .payload = "1");
	PUT(.topic = "theirs", .payload = "2");
	postroom_batch_free(CLAIM());
	EXPIRE_LEASES();
	/* Where lanes are leased a claim makes leases of messages of them first. */
	postroom_batch_free(claim_from(own, POSTROOM_CLAIM(.max_attempts = 1)));
	CHECK_MSG(own->ops->sweep(own, &pr_table_outbox, &claim, &batch, &err) >= 0, "%s",
		  err.text);
	pr_batch_release(&batch);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'dead' "
			      "AND topic = 'theirs'"),
		  0);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE status = 'dead' "
			      "AND topic = 'mine'"),
		  1);
	pr_store_close(own);
}

TEST(D1_drain_with_rules_does_not_wait_for_messages_of_others)
{
	struct postroom_store *own = open_with(RULES({ .topic = "mine", .mine = true }));
	const struct pr_claim claim = { .limit = 10, .max_attempts = 1, .lease_ms = 1000 };
	struct pr_err err = { 0 };
	bool any = true;

	PUT(.topic = "theirs", .payload = "2");
	CHECK(own->ops->unfinished(own, &pr_table_outbox, &claim, &any, &err) >= 0);
	CHECK(!any);
	PUT(.topic = "mine", .payload = "1");
	CHECK(own->ops->unfinished(own, &pr_table_outbox, &claim, &any, &err) >= 0);
	CHECK(any);
	pr_store_close(own);
}
