/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/text.h"

#include <stdint.h>
#include <string.h>

/*
 * The range of PostgreSQL's numeric: digits up to 10^131071, and 16383 digits after the point. Both
 * are counted after the exponent has moved the point. An exponent itself stays below INT_MAX / 2,
 * even on a zero.
 */
#define NUMERIC_TOP_PLACE 131071
#define NUMERIC_SCALE_MAX 16383
#define EXPONENT_LIMIT 1073741823

/*
 * jsonb prints 1e131071 digit by digit: a few kilobytes of such numbers are a gigabyte. The tables
 * accept JSON that jsonb prints with this many bytes; all other input has the same limit.
 */
#define PRINTED_MAX ((int64_t)64 * 1024 * 1024)

/* The meaning of a byte inside a string. */
enum { PLAIN, QUOTE, ESCAPE, CONTROL, WIDE };
static const unsigned char in_string[256] = {
	[0 ... 0x1f] = CONTROL,
	['"'] = QUOTE,
	['\\'] = ESCAPE,
	[0x80 ... 0xff] = WIDE,
};

struct scan {
	const char *at;
	const char *end;
	const char *what; /* the fault, at `at` */
	int64_t printed;  /* how many bytes jsonb makes of it, at most */
};

static bool fail(struct scan *scan, const char *what)
{
	scan->what = scan->at < scan->end ? what : "unexpected end";
	return false;
}

static char peek(const struct scan *scan)
{
	return scan->at < scan->end ? *scan->at : '\0';
}

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static void skip_space(struct scan *scan)
{
	const char *from = scan->at;

	while (scan->at < scan->end && is_space(*scan->at))
		scan->at++;
	scan->printed -= scan->at - from;
}

/* The value of four hex digits, or -1. */
static int read_hex4(const char *at, const char *end)
{
	int value = 0;

	if (end - at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = pr_hex_value(at[i]);

		if (digit < 0)
			return -1;
		value = value * 16 + digit;
	}
	return value;
}

/* Parses the escape that begins at `at`, which is a backslash. */
static bool check_escape(struct scan *scan)
{
	int first, second = -1;

	if (scan->end - scan->at < 2) {
		scan->at = scan->end;
		return fail(scan, NULL);
	}
	if (scan->at[1] != 'u') {
		if (scan->at[1] == '\0' || !strchr("\"\\/bfnrt", scan->at[1]))
			return fail(scan, "unknown escape");
		scan->at += 2;
		return true;
	}
	first = read_hex4(scan->at + 2, scan->end);
	if (first < 0)
		return fail(scan, "\\u without four hex digits");
	if (first == 0)
		return fail(scan, "\\u0000 is not allowed");
	if (first < 0xd800 || first > 0xdfff) {
		scan->at += 6;
		return true;
	}
	if (scan->end - scan->at >= 8 && scan->at[6] == '\\' && scan->at[7] == 'u')
		second = read_hex4(scan->at + 8, scan->end);
	if (first > 0xdbff || second < 0xdc00 || second > 0xdfff)
		return fail(scan, "half of a surrogate pair");
	scan->at += 12;
	return true;
}

/* Skips bytes that need no further check in a string, eight at a time where possible. */
static const char *skip_plain(const char *at, const char *end)
{
	const uint64_t ones = 0x0101010101010101u, tops = 0x80 * ones;

	while (end - at >= 8) {
		uint64_t bytes, quotes, escapes;

		memcpy(&bytes, at, 8);
		quotes = bytes ^ '"' * ones;
		escapes = bytes ^ '\\' * ones;
		/* Subtracting n from a byte below n sets its top bit. Bytes from 0x80 on have it
		 * set already. */
		if ((bytes | (bytes - 0x20 * ones) | (quotes - ones) | (escapes - ones)) & tops)
			break;
		at += 8;
	}
	while (at < end && in_string[(unsigned char)*at] == PLAIN)
		at++;
	return at;
}

static bool check_string(struct scan *scan)
{
	size_t step;

	scan->at++;
	for (;;) {
		scan->at = skip_plain(scan->at, scan->end);
		if (scan->at == scan->end)
			return fail(scan, NULL);
		switch (in_string[(unsigned char)*scan->at]) {
		case QUOTE:
			scan->at++;
			return true;
		case ESCAPE:
			if (!check_escape(scan))
				return false;
			break;
		case CONTROL:
			return fail(scan, "control character in a string");
		default:
			step = pr_utf8_length(scan->at, (size_t)(scan->end - scan->at));
			if (step == 0)
				return fail(scan, "invalid UTF-8");
			scan->at += step;
		}
	}
}

static bool skip_digits(struct scan *scan)
{
	if (!is_digit(peek(scan)))
		return fail(scan, "a digit is missing");
	while (is_digit(peek(scan)))
		scan->at++;
	return true;
}

/* Reads the digits after 'e'. A value past the limit stays at the limit. */
static bool read_exponent(struct scan *scan, int64_t *ret)
{
	bool negative = peek(scan) == '-';
	int64_t value = 0;
	const char *start;

	if (peek(scan) == '-' || peek(scan) == '+')
		scan->at++;
	start = scan->at;
	if (!skip_digits(scan))
		return false;
	for (; start < scan->at && value < EXPONENT_LIMIT; start++)
		value = value * 10 + (*start - '0');
	*ret = negative ? -value : value;
	return true;
}

static bool in_range(const char *start, const char *point, const char *stop, int64_t exponent)
{
	const char *lead = start;
	int64_t scale = point < stop ? stop - point - 1 : 0;
	int64_t place;

	if (exponent >= EXPONENT_LIMIT || exponent <= -EXPONENT_LIMIT)
		return false;
	if (scale - exponent > NUMERIC_SCALE_MAX)
		return false;
	while (lead < stop && (*lead == '0' || *lead == '.'))
		lead++;
	if (lead == stop)
		return true;
	place = lead < point ? point - lead - 1 : point - lead;
	return place + exponent <= NUMERIC_TOP_PLACE;
}

static bool is_zero(const char *start, const char *stop)
{
	while (start < stop && (*start == '0' || *start == '.'))
		start++;
	return start == stop;
}

static bool check_number(struct scan *scan)
{
	const char *whole = scan->at, *start, *point, *stop;
	int64_t exponent = 0;

	if (peek(scan) == '-')
		scan->at++;
	start = scan->at;
	if (peek(scan) == '0')
		scan->at++;
	else if (!skip_digits(scan))
		return false;
	point = scan->at;
	if (peek(scan) == '.') {
		scan->at++;
		if (!skip_digits(scan))
			return false;
	}
	stop = scan->at;
	if ((peek(scan) | 0x20) == 'e') {
		scan->at++;
		if (!read_exponent(scan, &exponent))
			return false;
	}
	/* Most numbers are short, and short ones without an exponent are in range. */
	if (exponent == 0 && stop - start <= NUMERIC_SCALE_MAX)
		return true;
	if (!in_range(start, point, stop, exponent)) {
		scan->at = whole;
		return fail(scan, "number out of range");
	}
	/* 0e9 is 0. */
	if (exponent > 0 && is_zero(start, stop))
		exponent = 0;
	if (exponent < 0)
		exponent = -exponent;
	scan->printed += exponent < NUMERIC_TOP_PLACE ? exponent : NUMERIC_TOP_PLACE;
	return true;
}

static bool check_word(struct scan *scan, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(scan->end - scan->at) < len || memcmp(scan->at, word, len) != 0)
		return fail(scan, "unexpected character");
	scan->at += len;
	return true;
}

static bool check_scalar(struct scan *scan)
{
	switch (peek(scan)) {
	case '"':
		return check_string(scan);
	case 't':
		return check_word(scan, "true");
	case 'f':
		return check_word(scan, "false");
	case 'n':
		return check_word(scan, "null");
	case '-':
	case '0' ... '9':
		return check_number(scan);
	default:
		return fail(scan, "unexpected character");
	}
}

/* A member's name and colon. */
static bool check_name(struct scan *scan)
{
	skip_space(scan);
	if (peek(scan) != '"')
		return fail(scan, "expected a member name in quotes");
	if (!check_string(scan))
		return false;
	skip_space(scan);
	if (peek(scan) != ':')
		return fail(scan, "':' is missing");
	scan->at++;
	scan->printed++;
	return true;
}

/* Continues after a value: closes all levels that end here, and stops before the next value or at
 * the end. */
static bool check_behind(struct scan *scan, const char *closers, size_t *depth)
{
	while (*depth > 0) {
		char closer = closers[*depth - 1];

		skip_space(scan);
		if (peek(scan) == ',') {
			scan->at++;
			scan->printed++;
			return closer == ']' || check_name(scan);
		}
		if (peek(scan) != closer)
			return fail(scan, closer == ']' ? "',' or ']' is missing"
							: "',' or '}' is missing");
		scan->at++;
		(*depth)--;
	}
	return true;
}

static bool check_text(struct scan *scan)
{
	char closers[PR_JSON_DEPTH];
	size_t depth = 0;

	do {
		char opener;

		skip_space(scan);
		opener = peek(scan);
		if (opener == '{' || opener == '[') {
			char closer = opener == '{' ? '}' : ']';

			if (depth == PR_JSON_DEPTH)
				return fail(scan, "nested too deeply");
			closers[depth++] = closer;
			scan->at++;
			skip_space(scan);
			if (peek(scan) != closer) {
				if (opener == '{' && !check_name(scan))
					return false;
				continue;
			}
		} else if (!check_scalar(scan)) {
			return false;
		}
		if (!check_behind(scan, closers, &depth))
			return false;
	} while (depth > 0);
	skip_space(scan);
	if (scan->at < scan->end)
		return fail(scan, "unexpected text after the value");
	if (scan->printed <= PRINTED_MAX)
		return true;
	scan->what = "more than 64 MiB when its numbers are written out";
	return false;
}

bool pr_json_check(const char *text, size_t len, struct pr_json_fault *fault)
{
	struct scan scan = { .at = text, .end = text + len, .printed = (int64_t)len };

	if (check_text(&scan))
		return true;
	if (fault) {
		fault->offset = (size_t)(scan.at - text);
		fault->reason = scan.what;
	}
	return false;
}

char pr_json_kind(struct pr_span value)
{
	struct scan scan = { .at = value.data, .end = value.data + value.len };

	skip_space(&scan);
	if (peek(&scan) == '-' || is_digit(peek(&scan)))
		return '0';
	return peek(&scan);
}

static void skip_string(struct scan *scan)
{
	scan->at++;
	while (scan->at < scan->end && *scan->at != '"')
		scan->at += *scan->at == '\\' && scan->end - scan->at > 1 ? 2 : 1;
	if (scan->at < scan->end)
		scan->at++;
}

static void skip_value(struct scan *scan)
{
	size_t depth = 0;

	if (peek(scan) == '"') {
		skip_string(scan);
		return;
	}
	while (scan->at < scan->end) {
		char c = *scan->at;

		if (c == '"') {
			skip_string(scan);
			continue;
		}
		if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_space(c)))
			return;
		scan->at++;
		if (c == '{' || c == '[')
			depth++;
		else if ((c == '}' || c == ']') && --depth == 0)
			return;
	}
}

struct pr_json_members pr_json_members(struct pr_span object)
{
	struct scan scan = { .at = object.data, .end = object.data + object.len };

	skip_space(&scan);
	if (peek(&scan) != '{')
		return (struct pr_json_members){ .at = scan.end, .end = scan.end };
	return (struct pr_json_members){ .at = scan.at + 1, .end = scan.end };
}

static struct pr_span take_value(struct scan *scan)
{
	const char *start = scan->at;

	skip_value(scan);
	return (struct pr_span){ .data = start, .len = (size_t)(scan->at - start) };
}

bool pr_json_next(struct pr_json_members *walk, struct pr_span *name, struct pr_span *value)
{
	struct scan scan = { .at = walk->at, .end = walk->end };

	skip_space(&scan);
	if (peek(&scan) == ',')
		scan.at++;
	skip_space(&scan);
	if (peek(&scan) != '"')
		return false;
	*name = take_value(&scan);
	skip_space(&scan);
	if (peek(&scan) == ':')
		scan.at++;
	skip_space(&scan);
	*value = take_value(&scan);
	walk->at = scan.at;
	return true;
}

static void put_utf8(struct pr_buf *out, unsigned c)
{
	char bytes[4];
	size_t len;

	if (c < 0x80) {
		bytes[0] = (char)c;
		len = 1;
	} else if (c < 0x800) {
		bytes[0] = (char)(0xc0 | c >> 6);
		bytes[1] = (char)(0x80 | (c & 0x3f));
		len = 2;
	} else if (c < 0x10000) {
		bytes[0] = (char)(0xe0 | c >> 12);
		bytes[1] = (char)(0x80 | (c >> 6 & 0x3f));
		bytes[2] = (char)(0x80 | (c & 0x3f));
		len = 3;
	} else {
		bytes[0] = (char)(0xf0 | c >> 18);
		bytes[1] = (char)(0x80 | (c >> 12 & 0x3f));
		bytes[2] = (char)(0x80 | (c >> 6 & 0x3f));
		bytes[3] = (char)(0x80 | (c & 0x3f));
		len = 4;
	}
	pr_buf_append(out, bytes, len);
}

/* Decodes the escape at `at`, a backslash, and returns the position after it. */
static const char *decode_escape(const char *at, const char *end, struct pr_buf *out)
{
	static const char names[] = "bfnrt", meanings[] = "\b\f\n\r\t";
	const char *name;
	int c, low;

	if (end - at < 2)
		return end;
	if (at[1] != 'u') {
		name = strchr(names, at[1]);
		pr_buf_putc(out, name && *name ? meanings[name - names] : at[1]);
		return at + 2;
	}
	c = read_hex4(at + 2, end);
	if (c < 0)
		return end;
	at += 6;
	if (c >= 0xd800 && c <= 0xdbff) {
		low = end - at > 2 ? read_hex4(at + 2, end) : -1;
		if (low < 0)
			return end;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		at += 6;
	}
	put_utf8(out, (unsigned)c);
	return at;
}

bool pr_json_is(struct pr_span value, const char *text)
{
	return value.len == strlen(text) && memcmp(value.data, text, value.len) == 0;
}

void pr_json_decode(struct pr_span string, struct pr_buf *out)
{
	const char *at = string.data, *end = at + string.len;

	if (string.len >= 2 && *at == '"') {
		at++;
		end--;
	}
	while (at < end) {
		const char *run = at;

		while (at < end && *at != '\\')
			at++;
		pr_buf_append(out, run, (size_t)(at - run));
		if (at < end)
			at = decode_escape(at, end, out);
	}
}

static void put_escaped(struct pr_buf *out, char c)
{
	static const char codes[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
	const char *code = c ? strchr(codes, c) : NULL;

	if (code) {
		pr_buf_putc(out, '\\');
		pr_buf_putc(out, names[code - codes]);
	} else {
		pr_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
	}
}

void pr_json_put_stringn(struct pr_buf *out, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	pr_buf_putc(out, '"');
	while (at < end) {
		const char *run = at;
		size_t step = 1;

		while (at < end && step > 0) {
			unsigned char kind = in_string[(unsigned char)*at];

			if (kind != PLAIN && kind != WIDE)
				break;
			step = kind == WIDE ? pr_utf8_length(at, (size_t)(end - at)) : 1;
			at += step;
		}
		pr_buf_append(out, run, (size_t)(at - run));
		if (at == end)
			break;
		/* This includes NUL: its only spelling, \u0000, is refused here. */
		if (step == 0 || *at == '\0')
			pr_buf_puts(out, "\xef\xbf\xbd");
		else
			put_escaped(out, *at);
		at++;
	}
	pr_buf_putc(out, '"');
}

void pr_json_put_string(struct pr_buf *out, const char *text)
{
	if (text)
		pr_json_put_stringn(out, text, strlen(text));
	else
		pr_buf_puts(out, "null");
}
