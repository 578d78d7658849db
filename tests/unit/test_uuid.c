/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/random.h"
#include "base/uuid.h"

#include <stdlib.h>

static void check_form(const char *uuid, char version)
{
	char lower[PR_UUID_SIZE];

	CHECK_INT(strlen(uuid), 36);
	CHECK(pr_uuid_normalize(uuid, lower));
	CHECK_STR(lower, uuid);
	CHECK_INT(uuid[14], version);
	CHECK(strchr("89ab", uuid[19]));
}

static int64_t milliseconds(const char *uuid)
{
	char digits[13];

	memcpy(digits, uuid, 8);
	memcpy(digits + 8, uuid + 9, 4);
	digits[12] = '\0';
	return strtoll(digits, NULL, 16);
}

TEST(uuid_v7_grows_within_a_millisecond_and_past_the_counter)
{
	struct pr_uuid_gen gen = { 0 };
	char last[PR_UUID_SIZE] = "", uuid[PR_UUID_SIZE];

	/* 20,000 in one millisecond: the 12-bit counter runs over several times. */
	for (int i = 0; i < 20000; i++) {
		pr_uuid_v7(&gen, 1794778662123456, uuid);
		check_form(uuid, '7');
		CHECK_MSG(strcmp(last, uuid) < 0, "%s, then %s", last, uuid);
		memcpy(last, uuid, sizeof(last));
	}
}

TEST(uuid_v7_survives_a_clock_that_jumps_back)
{
	struct pr_uuid_gen gen = { 0 };
	char last[PR_UUID_SIZE], uuid[PR_UUID_SIZE];

	pr_uuid_v7(&gen, 1794778662123456, last);
	CHECK_INT(milliseconds(last), 1794778662123);
	pr_uuid_v7(&gen, 1000000, uuid);
	CHECK(strcmp(last, uuid) < 0);
	pr_uuid_v7(&gen, 1794778670000000, uuid);
	CHECK_INT(milliseconds(uuid), 1794778670000);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, PR_UUID_SIZE);
}

TEST(uuid_of_different_generators_differ)
{
	enum { COUNT = 20000 };
	static char uuids[COUNT][PR_UUID_SIZE];

	for (int i = 0; i < COUNT; i += 2) {
		struct pr_uuid_gen gen = { 0 };

		pr_uuid_v7(&gen, 1794778662123456, uuids[i]);
		pr_uuid_v4(&gen.random, uuids[i + 1]);
		check_form(uuids[i + 1], '4');
	}
	qsort(uuids, COUNT, PR_UUID_SIZE, compare);
	for (int i = 1; i < COUNT; i++)
		CHECK(memcmp(uuids[i - 1], uuids[i], PR_UUID_SIZE) != 0);
}

TEST(uuid_normalize_accepts_either_case_with_or_without_hyphens)
{
	static const char *const bad[] = {
		"",
		"6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6",
		"6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b0",
		"6f1c2a349b0d4e5f8a7b1c2d3e4f5a6",
		"6f1c2a349b0d4e5f8a7b1c2d3e4f5a6b0",
		"6f1c2a349b0d-4e5f-8a7b-1c2d3e4f5a6b",
		"6f1c2a34-9b0d4e5f8a7b1c2d3e4f5a6b",
		"6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6g",
		"{6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b}",
		"6f1c2a34+9b0d-4e5f-8a7b-1c2d3e4f5a6b",
		"6f1c2a3-49b0d-4e5f-8a7b-1c2d3e4f5a6b",
		" 6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6",
	};
	char out[PR_UUID_SIZE] = "untouched";

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CHECK_MSG(!pr_uuid_normalize(bad[i], out), "took %s", bad[i]);
		CHECK_STR(out, "untouched");
	}
	CHECK(pr_uuid_normalize("6f1c2a349b0d4e5F8A7B1c2d3e4f5a6b", out));
	CHECK_STR(out, "6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b");
	CHECK(pr_uuid_normalize("6F1C2A34-9b0d-4E5F-8A7B-1C2D3E4F5A6B", out));
	CHECK_STR(out, "6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b");
}

TEST(random_between_stays_within_and_reaches_both_ends)
{
	struct pr_random random = { 0 };
	int seen[7] = { 0 };

	for (int i = 0; i < 7000; i++) {
		int64_t value = pr_random_between(&random, -3, 3);

		CHECK(value >= -3 && value <= 3);
		seen[value + 3]++;
	}
	/* 1000 each; 800 is six standard deviations away. */
	for (int i = 0; i < 7; i++)
		CHECK_MSG(seen[i] > 800 && seen[i] < 1200, "%d came %d times", i - 3, seen[i]);
	CHECK_INT(pr_random_between(&random, 5, 5), 5);
	for (int i = 0; i < 1000; i++) {
		CHECK(pr_random_between(&random, INT64_MAX - 1, INT64_MAX) >= INT64_MAX - 1);
		CHECK(pr_random_between(&random, 0, INT64_MAX) >= 0);
		pr_random_between(&random, INT64_MIN, INT64_MAX);
	}
}

TEST(random_bytes_do_not_repeat_across_refills)
{
	enum { WORDS = 4096 };
	struct pr_random random = { 0 };
	static uint64_t words[WORDS];
	unsigned char odd[3];

	for (int i = 0; i < WORDS; i++) {
		pr_random_fill(&random, odd,
			       sizeof(odd)); /* so that words straddle the pool's end */
		words[i] = pr_random_u64(&random);
		for (int j = 0; j < i; j++)
			CHECK(words[i] != words[j]);
	}
}
