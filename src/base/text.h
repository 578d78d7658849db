/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PR_BASE_TEXT_H
#define PR_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF. NUL is an ordinary
 * character. */
bool pr_utf8_valid(const char *text, size_t len);

/* Bytes of the well-formed character that text begins with, or 0. */
size_t pr_utf8_length(const char *text, size_t len);

/*
 * Copies text into out, which has room for size bytes: at most max_chars
 * characters, never part of one, ill-formed bytes and NUL as U+FFFD, and a NUL
 * at the end. Returns the length in bytes.
 */
size_t pr_utf8_sanitize(const char *text, size_t len, size_t max_chars, char *out, size_t size);

/* The value of a hexadecimal digit, or -1. */
int pr_hex_value(char c);

/* '*' matches any number of characters. Every other character matches itself. */
bool pr_pattern_match(const char *pattern, const char *text);

/* The name nearest to a mistyped word, or NULL if none is near. Names end in a NULL. */
const char *pr_text_nearest(const char *word, const char *const *names);

/* Control characters of ASCII, of which DEL is one. */
bool pr_text_has_control(const char *text);

#endif
