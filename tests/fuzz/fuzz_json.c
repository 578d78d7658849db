/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "base/json.h"
#include "base/text.h"

static bool inside(struct pr_span part, struct pr_span whole)
{
	return part.data >= whole.data && part.data + part.len <= whole.data + whole.len;
}

/* A raw string's meaning is UTF-8 without NUL, and survives being written and read again. */
static void check_string(struct pr_span string)
{
	struct pr_buf said = { 0 }, written = { 0 }, again = { 0 };

	pr_json_decode(string, &said);
	HOLDS(!said.failed && said.len + 2 <= string.len);
	HOLDS(pr_utf8_valid(pr_buf_text(&said), said.len));
	HOLDS(!memchr(pr_buf_text(&said), '\0', said.len));
	pr_json_put_stringn(&written, pr_buf_text(&said), said.len);
	HOLDS(pr_json_check(written.data, written.len, NULL));
	pr_json_decode((struct pr_span){ written.data, written.len }, &again);
	HOLDS(again.len == said.len);
	HOLDS(memcmp(pr_buf_text(&again), pr_buf_text(&said), said.len) == 0);
	pr_buf_release(&said);
	pr_buf_release(&written);
	pr_buf_release(&again);
}

static void check_value(struct pr_span value)
{
	struct pr_json_members walk = pr_json_members(value);
	struct pr_span name, member;
	char kind = pr_json_kind(value);

	HOLDS(kind != '\0' && strchr("{[\"tfn0", kind));
	if (kind == '"' && *value.data == '"' && value.data[value.len - 1] == '"')
		check_string(value);
	while (pr_json_next(&walk, &name, &member)) {
		HOLDS(kind == '{' && inside(name, value) && inside(member, value));
		HOLDS(name.len >= 2 && pr_json_check(name.data, name.len, NULL));
		HOLDS(pr_json_check(member.data, member.len, NULL));
		check_string(name);
		check_value(member);
	}
	HOLDS(walk.at <= walk.end);
}

/* Any bytes at all become a good string that says what sanitizing makes of them. */
static void check_writing(const char *text, size_t len)
{
	struct pr_buf written = { 0 }, said = { 0 };
	char *clean = malloc(len * 3 + 1);
	size_t clean_len;

	HOLDS(clean);
	clean_len = pr_utf8_sanitize(text, len, len, clean, len * 3 + 1);
	pr_json_put_stringn(&written, text, len);
	HOLDS(pr_json_check(written.data, written.len, NULL));
	pr_json_decode((struct pr_span){ written.data, written.len }, &said);
	HOLDS(said.len == clean_len && memcmp(pr_buf_text(&said), clean, clean_len) == 0);
	free(clean);
	pr_buf_release(&written);
	pr_buf_release(&said);
}

static void check_base64(const char *data, size_t len)
{
	struct pr_buf coded = { 0 }, plain = { 0 };

	pr_json_put_base64(&coded, data, len);
	HOLDS(pr_json_check(coded.data, coded.len, NULL));
	HOLDS(pr_base64_decode((struct pr_span){ coded.data + 1, coded.len - 2 }, &plain));
	HOLDS(plain.len == len && (len == 0 || memcmp(plain.data, data, len) == 0));
	pr_buf_reset(&coded);
	pr_buf_reset(&plain);
	if (pr_base64_decode((struct pr_span){ data, len }, &plain)) {
		pr_json_put_base64(&coded, pr_buf_text(&plain), plain.len);
		HOLDS(coded.len - 2 >= len && coded.len - 2 - len <= 2);
		HOLDS(memcmp(coded.data + 1, data, len) == 0);
	}
	pr_buf_release(&coded);
	pr_buf_release(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct pr_json_fault fault = { 0 };

	if (pr_json_check(text, size, &fault)) {
		HOLDS(pr_utf8_valid(text, size));
		check_value((struct pr_span){ text, size });
		/* A value with its end cut off is none, unless white space or a number's last digit went. */
		if (strchr("}]\"", text[size - 1]))
			HOLDS(!pr_json_check(text, size - 1, NULL));
	} else {
		HOLDS(fault.reason && fault.offset <= size);
	}
	check_writing(text, size);
	check_base64(text, size);
	return 0;
}
