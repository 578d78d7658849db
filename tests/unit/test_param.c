/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/param.h"

static const char *const colours[] = { "red", "green", "blue", NULL };

struct target {
	const char *name;
	bool flag;
	int64_t count;
	int64_t delay_ms;
	int64_t bytes;
	int64_t colour;
	struct pr_param_list headers;
};

static const struct pr_param table[] = {
	{ .name = "name", .type = PR_PARAM_STRING, .offset = offsetof(struct target, name) },
	{ .name = "flag", .type = PR_PARAM_FLAG, .offset = offsetof(struct target, flag) },
	{ .name = "batch-size",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct target, count),
	  .fallback = "500",
	  .min = 1,
	  .max = 10000 },
	{ .name = "base-delay",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct target, delay_ms),
	  .fallback = "5s",
	  .min = 10 },
	{ .name = "max_bytes",
	  .type = PR_PARAM_SIZE,
	  .offset = offsetof(struct target, bytes),
	  .fallback = "8M" },
	{ .name = "colour",
	  .type = PR_PARAM_CHOICE,
	  .offset = offsetof(struct target, colour),
	  .fallback = "green",
	  .choices = colours },
	{ .name = "header", .type = PR_PARAM_LIST, .offset = offsetof(struct target, headers) },
	{ 0 },
};

TEST(G1_defaults_are_from_the_table)
{
	struct target target;

	memset(&target, 0x5a, sizeof(target));
	pr_params_defaults(table, &target);
	CHECK(!target.name && !target.flag);
	CHECK_INT(target.count, 500);
	CHECK_INT(target.delay_ms, 5000);
	CHECK_INT(target.bytes, 8 * 1024 * 1024);
	CHECK_INT(target.colour, 1);
	CHECK_INT(target.headers.count, 0);
}

TEST(G1_values_are_parsed_and_checked)
{
	static const struct {
		const char *name, *text;
		int64_t value; /* -1: refused */
	} cases[] = {
		{ "batch-size", "1", 1 },
		{ "batch_size", "10000", 10000 },
		{ "batch-size", "0", -1 },
		{ "batch-size", "10001", -1 },
		{ "batch-size", "-1", -1 },
		{ "batch-size", "", -1 },
		{ "batch-size", "12x", -1 },
		{ "batch-size", " 12", -1 },
		{ "batch-size", "+12", -1 },
		{ "batch-size", "1e3", -1 },
		{ "batch-size", "99999999999999999999", -1 },
		{ "base-delay", "10ms", 10 },
		{ "base-delay", "9ms", -1 },
		{ "base-delay", "10", -1 },
		{ "max-bytes", "0", 0 },
		{ "max-bytes", "4096", 4096 },
		{ "max-bytes", "4096B", 4096 },
		{ "max-bytes", "64k", 65536 },
		{ "max-bytes", "64K", 65536 },
		{ "max-bytes", "1M", 1048576 },
		{ "max-bytes", "8MiB", 8388608 },
		{ "max-bytes", "1GB", 1073741824 },
		{ "max-bytes", "-1", -1 },
		{ "max-bytes", "1X", -1 },
		{ "max-bytes", "k", -1 },
		{ "max-bytes", "1kk", -1 },
		{ "max-bytes", "9999999999G", -1 },
		{ "colour", "blue", 2 },
		{ "colour", "violet", -1 },
		{ "colour", "", -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct pr_param *param = pr_param_find(table, cases[i].name);
		struct pr_err err = { 0 };
		struct target target;
		int64_t *value, before;
		int status;

		CHECK(param);
		pr_params_defaults(table, &target);
		value = (int64_t *)(void *)((char *)&target + param->offset);
		before = *value;
		status = pr_params_set(table, &target, cases[i].name, cases[i].text, &err);
		if (cases[i].value >= 0) {
			CHECK_MSG(status == POSTROOM_OK, "%s", err.text);
			CHECK_INT(*value, cases[i].value);
		} else {
			CHECK_MSG(status == POSTROOM_INVALID, "%s took \"%s\"", param->name,
				  cases[i].text);
			CHECK_INT(*value, before);
			CHECK_CONTAINS(err.text, param->name);
			CHECK_CONTAINS(err.text, cases[i].text);
		}
	}
}

TEST(G1_errors_name_the_accepted_values_of_a_parameter)
{
	struct target target;
	struct pr_err err;

	pr_params_set(table, &target, "batch-size", "x", &err);
	CHECK_STR(err.text, "batch-size takes a whole number from 1 to 10000, not \"x\"");
	pr_params_set(table, &target, "base-delay", "x", &err);
	CHECK_STR(err.text, "base-delay takes a duration like 250ms, 5s, 10m, 2h or 7d, "
			    "at least 10ms, not \"x\"");
	pr_params_set(table, &target, "colour", "x", &err);
	CHECK_STR(err.text, "colour takes red, green or blue, not \"x\"");
	pr_params_set(table, &target, "flag", "x", &err);
	CHECK_STR(err.text, "flag takes true or false, not \"x\"");
}

TEST(G1_unknown_parameter_offers_the_nearest)
{
	static const struct pr_param empty[] = { { 0 } };
	struct target target;
	struct pr_err err;

	CHECK_INT(pr_params_set(table, &target, "batchsize", "1", &err), POSTROOM_INVALID);
	CHECK_STR(err.text, "unknown setting \"batchsize\"; did you mean \"batch-size\"?");
	CHECK_INT(pr_params_set(table, &target, "frobnicate", "1", &err), POSTROOM_INVALID);
	CHECK_STR(err.text, "unknown setting \"frobnicate\"");
	CHECK_INT(pr_params_set(empty, &target, "a", "1", &err), POSTROOM_INVALID);
	CHECK_STR(pr_param_nearest(table, "color"), "colour");
	CHECK_STR(pr_param_nearest(table, "haeder"), "header");
}

TEST(G1_name_with_a_star_matches_its_prefix)
{
	static const struct pr_param open[] = {
		{ .name = "lib.*",
		  .type = PR_PARAM_LIST,
		  .offset = offsetof(struct target, headers) },
		{ 0 },
	};
	struct target target;
	struct pr_err err;

	pr_params_defaults(open, &target);
	CHECK_INT(pr_params_set(open, &target, "lib.linger.ms", "5", &err), POSTROOM_OK);
	CHECK_INT(pr_params_set(open, &target, "lib.x", "", &err), POSTROOM_OK);
	CHECK_INT(target.headers.count, 4);
	CHECK_STR(target.headers.items[0], "linger.ms");
	CHECK_STR(target.headers.items[1], "5");
	CHECK_STR(target.headers.items[2], "x");
	CHECK_STR(target.headers.items[3], "");
	CHECK_INT(pr_params_set(open, &target, "lib.", "5", &err), POSTROOM_INVALID);
	CHECK_INT(pr_params_set(open, &target, "library", "5", &err), POSTROOM_INVALID);
}

TEST(G1_flags_and_lists_are_parsed)
{
	static const char *const yes[] = { NULL, "", "true", "yes", "on", "1" };
	static const char *const no[] = { "false", "no", "off", "0" };
	struct target target;
	struct pr_err err;

	pr_params_defaults(table, &target);
	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
		target.flag = false;
		CHECK_INT(pr_params_set(table, &target, "flag", yes[i], &err), POSTROOM_OK);
		CHECK(target.flag);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
		target.flag = true;
		CHECK_INT(pr_params_set(table, &target, "flag", no[i], &err), POSTROOM_OK);
		CHECK(!target.flag);
	}
	for (size_t i = 0; i < PR_PARAM_LIST_MAX; i++)
		CHECK_INT(pr_params_set(table, &target, "header", "a=b", &err), POSTROOM_OK);
	CHECK_INT(pr_params_set(table, &target, "header", "a=b", &err), POSTROOM_INVALID);
	CHECK_CONTAINS(err.text, "header can be given at most 64 times");
	CHECK_INT(target.headers.count, PR_PARAM_LIST_MAX);
}
