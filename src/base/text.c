/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"
#define WORD_MAX 64

static bool continues(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

size_t pr_utf8_length(const char *text, size_t len)
{
	const unsigned char *c = (const unsigned char *)text;
	unsigned char low = 0x80, high = 0xbf;

	if (len >= 1 && c[0] < 0x80)
		return 1;
	if (len < 2 || c[0] < 0xc2 || c[0] > 0xf4)
		return 0;
	if (c[0] < 0xe0)
		return continues(c[1]) ? 2 : 0;

	/* The range of the second byte excludes overlong forms, surrogates and values past
	 * U+10FFFF. */
	if (c[0] == 0xe0)
		low = 0xa0;
	else if (c[0] == 0xed)
		high = 0x9f;
	else if (c[0] == 0xf0)
		low = 0x90;
	else if (c[0] == 0xf4)
		high = 0x8f;
	if (c[1] < low || c[1] > high || len < 3 || !continues(c[2]))
		return 0;
	if (c[0] < 0xf0)
		return 3;
	return len >= 4 && continues(c[3]) ? 4 : 0;
}

bool pr_utf8_valid(const char *text, size_t len)
{
	size_t at = 0, step;
	uint64_t eight;

	while (at < len) {
		if (len - at >= sizeof(eight)) {
			memcpy(&eight, text + at, sizeof(eight));
			if ((eight & 0x8080808080808080u) == 0) {
				at += sizeof(eight);
				continue;
			}
		}
		step = pr_utf8_length(text + at, len - at);
		if (step == 0)
			return false;
		at += step;
	}
	return true;
}

size_t pr_utf8_sanitize(const char *text, size_t len, size_t max_chars, char *out, size_t size)
{
	size_t at = 0, used = 0;

	if (size == 0)
		return 0;
	for (size_t chars = 0; at < len && chars < max_chars; chars++) {
		size_t step = pr_utf8_length(text + at, len - at);
		bool bad = step == 0 || text[at] == '\0';
		size_t width = bad ? strlen(REPLACEMENT) : step;

		if (width > size - 1 - used)
			break;
		memcpy(out + used, bad ? REPLACEMENT : text + at, width);
		used += width;
		at += bad ? 1 : step;
	}
	out[used] = '\0';
	return used;
}

int pr_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
		return (c | 0x20) - 'a' + 10;
	return -1;
}

bool pr_pattern_match(const char *pattern, const char *text)
{
	const char *star = NULL, *resume = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			resume = text;
		} else if (*pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			/* Only the last star needs to backtrack: earlier stars have matched all
			 * they must. */
			pattern = star + 1;
			text = ++resume;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a into b. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t rows[3][WORD_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_len; j++)
		above[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t *spare = before;

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = least(row[j], least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = spare;
	}
	return above[b_len];
}

const char *pr_text_nearest(const char *word, const char *const *names)
{
	const char *nearest = NULL;
	size_t nearest_distance = SIZE_MAX;
	size_t word_len = strlen(word);

	if (word_len == 0 || word_len > WORD_MAX)
		return NULL;
	for (; *names; names++) {
		size_t len = strlen(*names);
		size_t d;

		if (len > WORD_MAX)
			continue;
		d = distance(word, word_len, *names, len);
		/* A prefix of a name is as near as a typing error. */
		if (word_len >= 3 && strncmp(word, *names, word_len) == 0)
			d = 1;
		if (d * 3 <= (word_len > len ? word_len : len) && d < nearest_distance) {
			nearest = *names;
			nearest_distance = d;
		}
	}
	return nearest;
}

bool pr_text_has_control(const char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	}
	return false;
}
