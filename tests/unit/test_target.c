/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "sink/target.h"

static bool is_plain(char c)
{
	return (c >= 'a' && c <= 'z') || c == '.' || c == '-';
}

static const struct pr_target_rule any_bytes = { 0 };
static const struct pr_target_rule strict = {
	.text = is_plain, .value = is_plain, .escape = '%', .max = 20
};

static const postroom_delivery item = {
	.ns = "shop",
	.topic = "orders.created",
	.key = "a/b {topic} \xc3\xa9",
	.tenant_id = NULL,
};

TEST(target_uses_the_fields_of_the_message)
{
	static const struct {
		const char *template, *name;
	} cases[] = {
		{ "", "orders.created" },
		{ "events", "events" },
		{ "{topic}", "orders.created" },
		{ "{namespace}:{topic}:x", "shop:orders.created:x" },
		{ "{key}", "a/b {topic} \xc3\xa9" },
		{ "all{tenant}", "all" },
		{ "{{shop}}:{topic}", "{shop}:orders.created" },
		{ "{{{topic}}}", "{orders.created}" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		PR_CLEANUP_BUF struct pr_buf out = { 0 };
		struct pr_err err = { 0 };

		CHECK_MSG(pr_target_check(cases[i].template, &any_bytes, &err) == POSTROOM_OK,
			  "%s: %s", cases[i].template, err.text);
		CHECK_INT(pr_target_put(&out, cases[i].template, &any_bytes, &item, &err),
			  POSTROOM_OK);
		CHECK_STR(pr_buf_text(&out), cases[i].name);
	}
}

TEST(hostile_value_cannot_escape_its_part_of_the_name)
{
	static const char *const values[] = { "/../../x", "a b\r\nX: y", "{topic}",
					      "*.>",	  "%2f",	 "\x01\x7f\xff" };

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		postroom_delivery hostile = { .ns = "a", .topic = values[i] };
		struct pr_target_rule unlimited = strict;
		PR_CLEANUP_BUF struct pr_buf out = { 0 };

		unlimited.max = 0;
		CHECK_INT(pr_target_put(&out, "x-{topic}", &unlimited, &hostile, NULL),
			  POSTROOM_OK);
		CHECK(strncmp(pr_buf_text(&out), "x-", 2) == 0);
		for (const char *c = pr_buf_text(&out); *c; c++)
			CHECK_MSG(is_plain(*c) || (*c >= '0' && *c <= '9') ||
					  (*c >= 'A' && *c <= 'F') || *c == '%',
				  "%s became %s", values[i], pr_buf_text(&out));
	}
}

TEST(escaped_names_stay_distinct)
{
	PR_CLEANUP_BUF struct pr_buf out = { 0 };
	postroom_delivery hostile = { .ns = "a", .topic = "a/b%2F" };

	CHECK_INT(pr_target_put(&out, "{topic}", &strict, &hostile, NULL), POSTROOM_OK);
	CHECK_STR(pr_buf_text(&out), "a%2Fb%25%32%46");
}

TEST(invalid_target_is_refused_with_the_nearest_name)
{
	static const struct {
		const char *template, *says;
	} cases[] = {
		{ "{topik}", "did you mean {topic}?" },
		{ "{tenant_id}", "did you mean {tenant}?" },
		{ "{name}", "{namespace}" },
		{ "{whatever}", "there are {topic}" },
		{ "{topic", "do not pair" },
		{ "topic}", "do not pair" },
		{ "{}", "do not pair" },
		{ "a{b{topic}", "do not pair" },
		{ "a/b", "cannot contain \"/\"" },
		{ "a\xc3", "byte c3" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_err err = { 0 };

		CHECK_INT(pr_target_check(cases[i].template, &strict, &err), POSTROOM_SINK);
		CHECK_CONTAINS(err.text, cases[i].says);
	}
}

TEST(name_that_is_empty_or_too_long_rejects_its_message)
{
	PR_CLEANUP_BUF struct pr_buf out = { 0 };
	struct pr_err err = { 0 };
	postroom_delivery longer = { .ns = "a", .topic = "abcdefghijklmnopqrstu" };

	CHECK_INT(pr_target_put(&out, "{tenant}", &any_bytes, &item, &err), POSTROOM_INVALID);
	CHECK_CONTAINS(err.text, "empty");
	CHECK_INT(pr_target_put(&out, "{topic}", &strict, &longer, &err), POSTROOM_INVALID);
	CHECK_CONTAINS(err.text, "20 bytes");
}

TEST(target_reports_the_fields_it_uses)
{
	CHECK(pr_target_uses("", "topic") && !pr_target_uses("", "tenant"));
	CHECK(pr_target_uses("a:{tenant}", "tenant"));
	CHECK(!pr_target_uses("{{tenant}}", "tenant") && !pr_target_uses("tenant", "tenant"));
	CHECK(pr_target_is_template("a:{key}") && pr_target_is_template("{{{topic}"));
	CHECK(!pr_target_is_template("") && !pr_target_is_template("{{key}}"));
}

TEST(dot_that_would_leave_an_empty_part_is_escaped)
{
	static const char *const cases[][2] = {
		{ "a.b", "x.a.b.y" },	    { ".a", "x.%2Ea.y" }, { "a.", "x.a%2E.y" },
		{ "a..b", "x.a.%2Eb.y" },   { ".", "x.%2E.y" },	  { "..", "x.%2E%2E.y" },
		{ "...", "x.%2E%2E%2E.y" },
	};
	const struct pr_target_rule parts = { .value = is_plain, .escape = '%', .tokens = true };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery dotted = { .ns = "a", .topic = cases[i][0] };
		PR_CLEANUP_BUF struct pr_buf out = { 0 };

		CHECK_INT(pr_target_put(&out, "x.{topic}.y", &parts, &dotted, NULL), POSTROOM_OK);
		CHECK_STR(pr_buf_text(&out), cases[i][1]);
	}
}

static bool is_topic_sign(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') ||
	       c == '_';
}

/* Kafka's names leave no byte that could be set apart for escapes. */
TEST(K5_different_values_give_different_names)
{
	static const char *const values[] = {
		"a/",  "a_2F",	"a_5F2F", "a_5F_32F",	  "a__2F", "a_/",  "a_",
		"a",   "a_2",	"a_2f",	  "a_2_46",	  "a_5F",  "a_5",  "/",
		"_2F", "_5F2F", "_/2F",	  "//",		  "/_2F",  "_2F/", "_2F_2F",
		"_",   "__",	"_5F_5F", "order_created"
	};
	enum { COUNT = sizeof(values) / sizeof(*values) };
	const struct pr_target_rule topics = { .value = is_topic_sign, .escape = '_' };
	struct pr_buf names[COUNT] = { 0 };

	for (size_t i = 0; i < COUNT; i++) {
		postroom_delivery message = { .ns = "a", .topic = values[i] };

		CHECK_INT(pr_target_put(&names[i], "{topic}", &topics, &message, NULL),
			  POSTROOM_OK);
		for (size_t j = 0; j < i; j++)
			CHECK_MSG(strcmp(names[i].data, names[j].data) != 0,
				  "%s and %s are both %s", values[i], values[j], names[i].data);
	}
	CHECK_STR(names[0].data, "a_2F");
	CHECK_STR(names[1].data, "a_5F2F");
	CHECK_STR(names[COUNT - 1].data, "order_created");
	for (size_t i = 0; i < COUNT; i++)
		pr_buf_release(&names[i]);
}
