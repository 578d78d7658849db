/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/text.h"
#include "base/time.h"

#define EURO "\xe2\x82\xac"
#define FACE "\xf0\x9f\x98\x80"
#define BAD "\xef\xbf\xbd"

TEST(utf8_valid_agrees_with_the_standard)
{
	static const char *const good[] = {
		"",
		"plain",
		"\xc2\x80",
		"\xdf\xbf",
		"\xe0\xa0\x80",
		"\xed\x9f\xbf",
		"\xee\x80\x80",
		"\xef\xbf\xbf",
		"\xf0\x90\x80\x80",
		"\xf4\x8f\xbf\xbf",
		"12345678" EURO "12345678" FACE,
	};
	static const char *const bad[] = {
		"\x80",
		"\xbf",
		"\xc0\x80",
		"\xc1\xbf",
		"\xe0\x9f\xbf",
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		"\xf0\x8f\xbf\xbf",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xff",
		"\xc3",
		"\xe2\x82",
		"\xf0\x9f\x98",
		"\xc3(",
		"12345678\xff",
		"1234567\xc3",
		"\xe2\x82\xe2\x82\xac",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		CHECK_MSG(pr_utf8_valid(good[i], strlen(good[i])), "refused good %zu", i);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_MSG(!pr_utf8_valid(bad[i], strlen(bad[i])), "took bad %zu", i);
	CHECK(pr_utf8_valid("a\0b", 3));
}

TEST(A3_sanitize_never_cuts_inside_a_character)
{
	static const char text[] = "a\xc3\xa9" EURO FACE "b" FACE;
	static const size_t ends[] = { 0, 1, 3, 6, 10, 11, 15, 15 };
	char out[64];

	for (size_t chars = 0; chars < sizeof(ends) / sizeof(*ends); chars++) {
		CHECK_INT(pr_utf8_sanitize(text, strlen(text), chars, out, sizeof(out)),
			  ends[chars]);
		CHECK(memcmp(out, text, ends[chars]) == 0 && out[ends[chars]] == '\0');
	}
	for (size_t size = 1; size < sizeof(out); size++) {
		size_t len = pr_utf8_sanitize(text, strlen(text), 100, out, size);

		CHECK(len < size && out[len] == '\0' && pr_utf8_valid(out, len));
	}
	out[0] = 'x';
	CHECK_INT(pr_utf8_sanitize(text, strlen(text), 100, out, 0), 0);
	CHECK_INT(out[0], 'x');
}

TEST(A3_sanitize_replaces_ill_formed_bytes_and_nul)
{
	char out[64];

	pr_utf8_sanitize("a\0b", 3, 10, out, sizeof(out));
	CHECK_STR(out, "a" BAD "b");
	pr_utf8_sanitize("\xff" EURO "\xe2\x82", 6, 10, out, sizeof(out));
	CHECK_STR(out, BAD EURO BAD BAD);
	/* The source may itself have been cut inside a character. */
	pr_utf8_sanitize("ab\xf0\x9f", 4, 10, out, sizeof(out));
	CHECK_STR(out, "ab" BAD BAD);
	pr_utf8_sanitize("\xff\xff\xff", 3, 2, out, sizeof(out));
	CHECK_STR(out, BAD BAD);
}

TEST(C6_star_in_pattern_matches_any_characters)
{
	static const struct {
		const char *pattern, *text;
		bool match;
	} cases[] = {
		{ "", "", true },
		{ "", "a", false },
		{ "*", "", true },
		{ "*", "orders.created", true },
		{ "orders.*", "orders.created", true },
		{ "orders.*", "orders.", true },
		{ "orders.*", "orders", false },
		{ "orders.*", "orders.eu.created", true },
		{ "*.created", "orders.eu.created", true },
		{ "*.created", "orders.created.twice", false },
		{ "a*b*c", "abc", true },
		{ "a*b*c", "a-b-b-c", true },
		{ "a*b*c", "a-c-b", false },
		{ "*a*a*a*", "aa", false },
		{ "**", "x", true },
		{ "a**", "a", true },
		{ "a", "A", false },
		{ "a?c", "abc", false },
		{ "a[b]c", "abc", false },
		{ "\\*", "\\anything", true },
		{ "*ab", "aab", true },
		{ "*" EURO "*", "1 " EURO " 2", true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		CHECK_MSG(pr_pattern_match(cases[i].pattern, cases[i].text) == cases[i].match,
			  "\"%s\" on \"%s\"", cases[i].pattern, cases[i].text);
}

TEST(C6_pattern_of_many_stars_is_not_exponential)
{
	char text[20001];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK(!pr_pattern_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

TEST(nearest_name_of_a_mistyped_word)
{
	static const char *const names[] = { "list",  "lease",	    "retry",	 "relay",
					     "stats", "batch-size", "namespace", NULL };
	static const char *const none[] = { NULL };
	char long_word[200];

	CHECK_STR(pr_text_nearest("lsit", names), "list");
	CHECK_STR(pr_text_nearest("relya", names), "relay");
	CHECK_STR(pr_text_nearest("batchsize", names), "batch-size");
	CHECK_STR(pr_text_nearest("batch_size", names), "batch-size");
	CHECK_STR(pr_text_nearest("name", names), "namespace");
	CHECK_STR(pr_text_nearest("status", names), "stats");
	CHECK_STR(pr_text_nearest("list", names), "list");
	CHECK(!pr_text_nearest("frobnicate", names));
	CHECK(!pr_text_nearest("", names));
	CHECK(!pr_text_nearest("x", names));
	CHECK(!pr_text_nearest("list", none));
	memset(long_word, 'l', sizeof(long_word) - 1);
	long_word[sizeof(long_word) - 1] = '\0';
	CHECK(!pr_text_nearest(long_word, names));
}

TEST(D1_durations_parse)
{
	static const struct {
		const char *text;
		int64_t ms;
	} cases[] = {
		{ "0", 0 },
		{ "0s", 0 },
		{ "0.0", 0 },
		{ "1ms", 1 },
		{ "250ms", 250 },
		{ "5s", 5000 },
		{ "1.5s", 1500 },
		{ "0.001s", 1 },
		{ "1.0ms", 1 },
		{ "10m", 600000 },
		{ "0.5m", 30000 },
		{ "2h", 7200000 },
		{ "7d", 604800000 },
		{ "0.000000125d", -1 },
		{ "0.25d", 21600000 },
		{ "007s", 7000 },
		{ "9223372036854775807ms", INT64_MAX },
		{ "9223372036854775.807s", INT64_MAX },
		{ "9223372036854775808ms", -1 },
		{ "9223372036854775.808s", -1 },
		{ "99999999999999999999ms", -1 },
		{ "99999999999999999999s", -1 },
		{ "106751991168d", -1 },
		{ "", -1 },
		{ "s", -1 },
		{ "5", -1 },
		{ "0.5", -1 },
		{ "-5s", -1 },
		{ "-0s", -1 },
		{ "+5s", -1 },
		{ " 5s", -1 },
		{ "5 s", -1 },
		{ "5s ", -1 },
		{ "5S", -1 },
		{ "5sec", -1 },
		{ "1h30m", -1 },
		{ "1.s", -1 },
		{ ".5s", -1 },
		{ "1..5s", -1 },
		{ "0.5ms", -1 },
		{ "0.0001s", -1 },
		{ "1.00000000000s", -1 },
		{ "1e3s", -1 },
		{ "0x10s", -1 },
		{ "5us", -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_err err = { 0 };
		int64_t ms = -7;
		int status = pr_duration_parse(cases[i].text, &ms, &err);

		if (cases[i].ms >= 0) {
			CHECK_MSG(status == POSTROOM_OK, "%s: %s", cases[i].text, err.text);
			CHECK_INT(ms, cases[i].ms);
		} else {
			CHECK_MSG(status == POSTROOM_INVALID, "took \"%s\"", cases[i].text);
			CHECK_INT(ms, -7);
			CHECK_CONTAINS(err.text, cases[i].text);
			CHECK_CONTAINS(err.text, "250ms, 5s, 10m, 2h or 7d");
		}
	}
}

TEST(D1_durations_print_short_and_read_back)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {
		{ 0, "0s" },
		{ 1, "1ms" },
		{ 250, "250ms" },
		{ 1000, "1s" },
		{ 1500, "1500ms" },
		{ 90000, "90s" },
		{ 600000, "10m" },
		{ 7200000, "2h" },
		{ 604800000, "7d" },
		{ 86400000 + 1, "86400001ms" },
		{ INT64_MAX, "9223372036854775807ms" },
	};
	char out[PR_DURATION_SIZE];
	int64_t back;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pr_duration_format(cases[i].ms, out);
		CHECK_STR(out, cases[i].text);
		CHECK_INT(pr_duration_parse(out, &back, NULL), POSTROOM_OK);
		CHECK_INT(back, cases[i].ms);
	}
}

TEST(times_are_rfc_3339)
{
	static const struct {
		int64_t us;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00.000000Z" },
		{ 1, "1970-01-01T00:00:00.000001Z" },
		{ -1, "1969-12-31T23:59:59.999999Z" },
		{ -1000000, "1969-12-31T23:59:59.000000Z" },
		{ 951782400000000, "2000-02-29T00:00:00.000000Z" },
		{ 1794778662123456, "2026-11-15T21:37:42.123456Z" },
		{ 4102444799999999, "2099-12-31T23:59:59.999999Z" },
		{ 253402300799999999, "9999-12-31T23:59:59.999999Z" },
	};
	char out[PR_RFC3339_SIZE];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pr_rfc3339(cases[i].us, out);
		CHECK_STR(out, cases[i].text);
	}
	/* Far outside it still fits and ends in Z. */
	pr_rfc3339(INT64_MAX, out);
	CHECK_INT(out[strlen(out) - 1], 'Z');
	pr_rfc3339(INT64_MIN, out);
	CHECK_INT(out[strlen(out) - 1], 'Z');
}

TEST(clocks_are_monotonic)
{
	int64_t mono = pr_mono_us(), now = pr_now_us();

	CHECK(pr_mono_us() >= mono);
	CHECK(now > 1700000000000000);
}
