/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/json.h"
#include "base/text.h"
#include "table.h"

#include <stdlib.h>

static struct pr_span span(const char *text)
{
	return (struct pr_span){ text, strlen(text) };
}

/* Bytes in a block of just their size, so that the sanitizer sees a step too far. */
static char *exact(const char *data, size_t len)
{
	char *copy = malloc(len ? len : 1);

	CHECK(copy);
	memcpy(copy, data, len);
	return copy;
}

TEST(E5_json_verdicts_agree_with_jsonb)
{
	char *fields[3];
	struct table table;
	int taken = 0, refused = 0;

	table_open(&table, "json_cases.tsv");
	while (table_next(&table, fields, 3)) {
		struct pr_json_fault fault = { .offset = SIZE_MAX };
		struct pr_buf text = { 0 };
		bool expected = strcmp(fields[0], "ok") == 0;
		char *copy;

		table_unescape(fields[1], strlen(fields[1]), &text);
		CHECK(!text.failed);
		copy = exact(pr_buf_text(&text), text.len);
		CHECK_MSG(pr_json_check(copy, text.len, &fault) == expected, "line %d (%s): %s",
			  table.number, fields[2], expected ? fault.reason : "taken");
		if (!expected)
			CHECK_MSG(fault.reason && *fault.reason && fault.offset <= text.len,
				  "line %d: offset %zu", table.number, fault.offset);
		*(expected ? &taken : &refused) += 1;
		free(copy);
		pr_buf_release(&text);
	}
	table_close(&table);
	CHECK(taken > 50 && refused > 100);
}

TEST(E5_json_fault_has_position_and_reason)
{
	static const struct {
		const char *text;
		size_t offset;
		const char *reason;
	} cases[] = {
		{ "", 0, "unexpected end" },
		{ "{\"a\":1", 6, "unexpected end" },
		{ "[1,]", 3, "unexpected character" },
		{ "{\"a\":\"\\u0000\"}", 6, "\\u0000 is not allowed" },
		{ "[\"\\ud800\"]", 2, "half of a surrogate pair" },
		{ "[1e131072]", 1, "number out of range" },
		{ "[1] x", 4, "unexpected text after the value" },
		{ "\"a\nb\"", 2, "control character in a string" },
		{ "\"a\xff\"", 2, "invalid UTF-8" },
		{ "{a:1}", 1, "expected a member name in quotes" },
		{ "{\"a\" 1}", 5, "':' is missing" },
		{ "{\"a\":1 2}", 7, "',' or '}' is missing" },
		{ "[1 2]", 3, "',' or ']' is missing" },
		{ "\"\\q\"", 1, "unknown escape" },
		{ "-x", 1, "a digit is missing" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_json_fault fault = { 0 };

		CHECK(!pr_json_check(cases[i].text, strlen(cases[i].text), &fault));
		CHECK_STR(fault.reason, cases[i].reason);
		CHECK_INT(fault.offset, cases[i].offset);
	}
}

TEST(E5_every_cut_of_a_text_is_refused)
{
	static const char text[] =
		"{\"a\\u00e9\\ud83d\\ude00\xc3\xa9\":[-1.5e+3,{\"b\":true},null,\"\\n\"]}";

	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		char *copy = exact(text, len);

		CHECK_MSG(!pr_json_check(copy, len, NULL), "taken at %zu bytes", len);
		free(copy);
	}
	CHECK(pr_json_check(text, sizeof(text) - 1, NULL));
}

TEST(json_kind_is_that_of_the_value)
{
	CHECK_INT(pr_json_kind(span(" {}")), '{');
	CHECK_INT(pr_json_kind(span("\n[1]")), '[');
	CHECK_INT(pr_json_kind(span("\"x\"")), '"');
	CHECK_INT(pr_json_kind(span("true")), 't');
	CHECK_INT(pr_json_kind(span("false")), 'f');
	CHECK_INT(pr_json_kind(span("null")), 'n');
	CHECK_INT(pr_json_kind(span("-1")), '0');
	CHECK_INT(pr_json_kind(span(" 7")), '0');
}

TEST(json_members_are_raw_and_in_order)
{
	static const char *const expected[][2] = {
		{ "\"a\"", "1" },
		{ "\"b\\\"}\"", "\"}\\\",\"" },
		{ "\"c\"", "[1,{\"x\":\"]\"}]" },
		{ "\"\"", "{ }" },
		{ "\"d\"", "null" },
		{ "\"a\"", "-1e5" },
	};
	struct pr_json_members walk = pr_json_members(
		span(" { \"a\" : 1 , \"b\\\"}\":\"}\\\",\",\"c\":[1,{\"x\":\"]\"}] , \"\": { },"
		     "\"d\":null,\"a\":-1e5\n} "));
	struct pr_span name, value;

	for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		CHECK(pr_json_next(&walk, &name, &value));
		CHECK_INT(name.len, strlen(expected[i][0]));
		CHECK(memcmp(name.data, expected[i][0], name.len) == 0);
		CHECK_INT(value.len, strlen(expected[i][1]));
		CHECK(memcmp(value.data, expected[i][1], value.len) == 0);
	}
	CHECK(!pr_json_next(&walk, &name, &value));
	walk = pr_json_members(span("{}"));
	CHECK(!pr_json_next(&walk, &name, &value));
	walk = pr_json_members(span("[\"a\"]"));
	CHECK(!pr_json_next(&walk, &name, &value));
}

TEST(json_decode_undoes_every_escape)
{
	struct pr_buf out = { 0 };

	pr_json_decode(span("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00x\""),
		       &out);
	CHECK_STR(pr_buf_text(&out), "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80x");
	pr_buf_reset(&out);
	pr_json_decode(span("\"\""), &out);
	CHECK_INT(out.len, 0);
	pr_buf_release(&out);
}

TEST(json_strings_round_trip)
{
	char text[0x80], *copy;
	struct pr_buf out = { 0 }, back = { 0 };

	for (int i = 1; i < 0x80; i++)
		text[i - 1] = (char)i;
	text[0x7f] = '\0';
	pr_json_put_string(&out, text);
	CHECK(pr_json_check(out.data, out.len, NULL));
	pr_json_decode((struct pr_span){ out.data, out.len }, &back);
	CHECK_STR(pr_buf_text(&back), text);

	pr_buf_reset(&out);
	pr_json_put_string(&out, NULL);
	CHECK_STR(pr_buf_text(&out), "null");

	/* é, then a letter: the step over a wide character must not be taken again. */
	pr_buf_reset(&out);
	pr_json_put_string(&out, "\xc3\xa9"
				 "a\xff"
				 "b\xe2\x82");
	CHECK_STR(pr_buf_text(&out), "\"\xc3\xa9"
				     "a\xef\xbf\xbd"
				     "b\xef\xbf\xbd\xef\xbf\xbd\"");

	pr_buf_reset(&out);
	copy = exact("a\0b", 3);
	pr_json_put_stringn(&out, copy, 3);
	CHECK_STR(pr_buf_text(&out), "\"a\xef\xbf\xbd"
				     "b\"");
	free(copy);
	pr_buf_release(&out);
	pr_buf_release(&back);
}

TEST(base64_vectors)
{
	static const char *const vectors[][2] = {
		{ "", "" },
		{ "f", "Zg==" },
		{ "fo", "Zm8=" },
		{ "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" },
		{ "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" },
		{ "\xff\xfe\xfb", "//77" },
	};

	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		const char *plain = vectors[i][0], *coded = vectors[i][1];
		struct pr_buf out = { 0 };

		pr_json_put_base64(&out, plain, strlen(plain));
		CHECK_INT(out.len, strlen(coded) + 2);
		CHECK(memcmp(out.data + 1, coded, strlen(coded)) == 0);
		CHECK(pr_json_check(out.data, out.len, NULL));
		CHECK_INT(strlen(out.data), out.len);

		pr_buf_reset(&out);
		CHECK(pr_base64_decode(span(coded), &out));
		CHECK_STR(pr_buf_text(&out), plain);

		pr_buf_reset(&out);
		CHECK(pr_base64_decode((struct pr_span){ coded, strcspn(coded, "=") }, &out));
		CHECK_STR(pr_buf_text(&out), plain);
		pr_buf_release(&out);
	}
}

TEST(base64_refuses_invalid_text)
{
	static const char *const bad[] = {
		"Z",   "Zg=",  "Zh==",	"Zg===", "=",	  "====",
		"Zm9", "Zm=v", "Zm 8=", "Zm-_",	 "Zm9vZ", "\n",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pr_buf out = { 0 };

		CHECK_MSG(!pr_base64_decode(span(bad[i]), &out), "took \"%s\"", bad[i]);
		pr_buf_release(&out);
	}
}
