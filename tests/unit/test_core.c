/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/text.h"
#include "core/verdict.h"
#include "table.h"

#include <stdlib.h>

static const struct pr_policy policy = {
	.max_attempts = 10,
	.base_delay_ms = 1000,
	.max_delay_ms = 300000,
	.max_error_length = 2000,
};

TEST(R1_delay_doubles_up_to_its_maximum)
{
	static const int64_t delays[] = { 1000,	 2000,	 4000,	 8000,	 16000,	 32000,
					  64000, 128000, 256000, 300000, 300000, 300000 };
	struct pr_random random = { 0 };

	for (size_t i = 0; i < sizeof(delays) / sizeof(*delays); i++) {
		int64_t low = INT64_MAX, high = 0;

		for (int draw = 0; draw < 2000; draw++) {
			int64_t ms = pr_backoff_ms(&policy, (int32_t)i + 1, &random);

			low = ms < low ? ms : low;
			high = ms > high ? ms : high;
		}
		CHECK_MSG(low >= delays[i] / 2 && high <= delays[i], "attempt %zu: %lld to %lld",
			  i + 1, (long long)low, (long long)high);
		/* 2000 draws that all miss the outer twentieth: once in 10^44. */
		CHECK_MSG(low <= delays[i] / 2 + delays[i] / 40 &&
				  high >= delays[i] - delays[i] / 40,
			  "attempt %zu: only %lld to %lld", i + 1, (long long)low, (long long)high);
	}
}

TEST(R1_jitter_is_uniform_between_half_and_whole)
{
	enum { DRAWS = 100000 };
	struct pr_random random = { 0 };
	int quarters[4] = { 0 };

	for (int i = 0; i < DRAWS; i++) {
		int64_t ms = pr_backoff_ms(&policy, 4, &random);

		CHECK_MSG(ms >= 4000 && ms <= 8000, "%lld", (long long)ms);
		quarters[ms == 8000 ? 3 : (ms - 4000) / 1000]++;
	}
	/* 25,000 each; 1,000 is seven standard deviations. */
	for (int i = 0; i < 4; i++)
		CHECK_MSG(abs(quarters[i] - DRAWS / 4) < 1000, "quarter %d has %d", i, quarters[i]);
}

TEST(R1_no_attempts_count_overflows)
{
	static const int32_t counts[] = { INT32_MIN, -1, 0,  1,	 2,  31,   32,
					  33,	     62, 63, 64, 65, 1000, INT32_MAX - 1,
					  INT32_MAX };
	static const struct pr_policy policies[] = {
		{ .base_delay_ms = 1, .max_delay_ms = INT64_MAX },
		{ .base_delay_ms = INT64_MAX, .max_delay_ms = INT64_MAX },
		{ .base_delay_ms = INT64_MAX / 2 + 1, .max_delay_ms = INT64_MAX },
		{ .base_delay_ms = 3, .max_delay_ms = INT64_MAX - 1 },
		{ .base_delay_ms = 1000, .max_delay_ms = 300000 },
		{ .base_delay_ms = 5000, .max_delay_ms = 1000 },
		{ .base_delay_ms = 0, .max_delay_ms = 1000 },
		{ .base_delay_ms = 1, .max_delay_ms = 1 },
	};
	struct pr_random random = { 0 };

	for (size_t p = 0; p < sizeof(policies) / sizeof(*policies); p++) {
		for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
			int64_t ms = pr_backoff_ms(&policies[p], counts[i], &random);
			int64_t least = counts[i] > 63 && policies[p].base_delay_ms > 0
						? policies[p].max_delay_ms / 2
						: 0;

			CHECK_MSG(ms >= least && ms <= policies[p].max_delay_ms,
				  "policy %zu, attempts %d: %lld", p, counts[i], (long long)ms);
		}
	}
}

TEST(R1_constant_delay_does_not_grow)
{
	static const int32_t counts[] = { 1, 2, 10, INT32_MAX };
	struct pr_policy constant = policy;
	struct pr_random random = { 0 };

	constant.backoff = POSTROOM_BACKOFF_CONSTANT;
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		CHECK_INT(pr_backoff_ms(&constant, counts[i], &random), 1000);
}

TEST(A1_A3_A6_R2_each_verdict_has_its_disposition)
{
	static const struct {
		postroom_verdict verdict;
		int attempt;
		enum pr_disposition disposition;
	} cases[] = {
		{ POSTROOM_DELIVERED, 1, PR_DISPOSITION_DONE },
		{ POSTROOM_DELIVERED, 10, PR_DISPOSITION_DONE },
		{ POSTROOM_REJECTED, 1, PR_DISPOSITION_DEAD },
		{ POSTROOM_FAILED, 1, PR_DISPOSITION_RETRY },
		{ POSTROOM_FAILED, 9, PR_DISPOSITION_RETRY },
		{ POSTROOM_FAILED, 10, PR_DISPOSITION_DEAD },
		{ POSTROOM_FAILED, 11, PR_DISPOSITION_DEAD },
		{ POSTROOM_UNTRIED, 1, PR_DISPOSITION_RELEASE },
		{ POSTROOM_UNTRIED, 10, PR_DISPOSITION_RELEASE },
		{ POSTROOM_UNREACHABLE, 1, PR_DISPOSITION_RELEASE },
		{ POSTROOM_UNREACHABLE, 10, PR_DISPOSITION_RELEASE },
	};
	struct pr_random random = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery item = { .verdict = cases[i].verdict,
					   .attempt = cases[i].attempt,
					   .retry_in_ms = -1 };

		CHECK_INT(pr_verdict_decide(&item, &policy, &random), cases[i].disposition);
		CHECK_INT(item.retry_in_ms >= 0, cases[i].disposition == PR_DISPOSITION_RETRY);
	}
}

TEST(R3_publisher_may_set_the_retry_time)
{
	postroom_delivery item = { .verdict = POSTROOM_FAILED, .attempt = 1, .retry_in_ms = 77777 };
	struct pr_random random = { 0 };

	CHECK_INT(pr_verdict_decide(&item, &policy, &random), PR_DISPOSITION_RETRY);
	CHECK_INT(item.retry_in_ms, 77777);
	item.retry_in_ms = 0;
	CHECK_INT(pr_verdict_decide(&item, &policy, &random), PR_DISPOSITION_RETRY);
	CHECK_INT(item.retry_in_ms, 0);
}

TEST(A3_reasons_are_cut_between_characters_and_cleaned)
{
	struct pr_policy five = policy;
	struct pr_arena arena = { 0 };
	postroom_delivery item = { 0 };

	five.max_error_length = 5;
	pr_verdict_set(&item, POSTROOM_FAILED, &arena, &five,
		       "ab\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9z", 12);
	CHECK_INT(item.verdict, POSTROOM_FAILED);
	CHECK_STR(item.reason, "ab\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9");
	pr_verdict_set(&item, POSTROOM_REJECTED, &arena, &five, "a\0\xff", 3);
	CHECK_STR(item.reason, "a\xef\xbf\xbd\xef\xbf\xbd");
	pr_verdict_set(&item, POSTROOM_REJECTED, &arena, &five, "\xff\xff\xff\xff\xff\xff\xff", 7);
	CHECK_INT(strlen(item.reason), 15);
	pr_verdict_set(&item, POSTROOM_FAILED, &arena, &five, "", 0);
	CHECK_STR(item.reason, "");
	pr_verdict_set(&item, POSTROOM_DELIVERED, &arena, &five, NULL, 0);
	CHECK(!item.reason);
	pr_arena_release(&arena);
}

TEST(I1_keys_agree_with_the_table)
{
	char *fields[6];
	struct table table;
	int rows = 0;

	table_open(&table, "key_vectors.tsv");
	while (table_next(&table, fields, 6)) {
		char key[POSTROOM_ID_SIZE] = "";
		const char *version = strcmp(fields[4], "\\N") == 0 ? NULL : fields[4];
		int status = postroom_key(fields[0], fields[1], fields[2], fields[3], version, key);

		if (strcmp(fields[5], "invalid") == 0) {
			CHECK_MSG(status == POSTROOM_INVALID, "line %d taken", table.number);
		} else {
			CHECK_MSG(status == POSTROOM_OK, "line %d refused", table.number);
			CHECK_STR(key, fields[5]);
		}
		rows++;
	}
	table_close(&table);
	CHECK(rows > 20);
}

TEST(I1_parts_that_are_missing_or_not_utf8_are_refused)
{
	char key[POSTROOM_ID_SIZE];

	CHECK_INT(postroom_key(NULL, "c", "e", "k", NULL, key), POSTROOM_INVALID);
	CHECK_INT(postroom_key("t", NULL, "e", "k", NULL, key), POSTROOM_INVALID);
	CHECK_INT(postroom_key("t", "c", NULL, "k", NULL, key), POSTROOM_INVALID);
	CHECK_INT(postroom_key("t", "c", "e", NULL, NULL, key), POSTROOM_INVALID);
	CHECK_INT(postroom_key("t", "c", "\xff", "k", NULL, key), POSTROOM_INVALID);
	CHECK_INT(postroom_key("t", "c", "e", "k", "\xc3", key), POSTROOM_INVALID);
}
