/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define PIECES 4000

static size_t piece_size(size_t i)
{
	return i * 37 % 900;
}

static void fill(struct pr_arena *arena, void **pieces)
{
	for (size_t i = 0; i < PIECES; i++) {
		pieces[i] = pr_arena_alloc(arena, piece_size(i));
		CHECK(pieces[i]);
		CHECK_INT((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
		memset(pieces[i], (int)(i & 0xff), piece_size(i));
	}
}

TEST(D8_arena_pieces_do_not_overlap)
{
	struct pr_arena arena = { 0 };
	unsigned char *pieces[PIECES];

	fill(&arena, (void **)pieces);
	for (size_t i = 0; i < PIECES; i++) {
		for (size_t j = 0; j < piece_size(i); j++)
			CHECK(pieces[i][j] == (i & 0xff));
	}
	pr_arena_release(&arena);
}

TEST(D8_arena_refilled_after_reset_allocates_nothing)
{
	struct pr_arena arena = { 0 };
	void *first[PIECES], *second[PIECES];

	fill(&arena, first);
	for (int round = 0; round < 3; round++) {
		pr_arena_reset(&arena);
		fill(&arena, second);
		CHECK(memcmp(first, second, sizeof(first)) == 0);
	}
	pr_arena_release(&arena);
}

TEST(D8_arena_reset_frees_oversize_values)
{
	struct pr_arena arena = { 0 };
	size_t size = (size_t)8 << 20;
	char *big = pr_arena_alloc(&arena, size), *small;

	CHECK(big);
	memset(big, 'x', size);
	pr_arena_reset(&arena);
	CHECK(!arena.first);

	small = pr_arena_strdup(&arena, "small");
	big = pr_arena_alloc(&arena, size);
	CHECK(big);
	memset(big, 'x', size);
	CHECK_STR(small, "small");
	CHECK_STR(pr_arena_strdup(&arena, "behind"), "behind");
	pr_arena_reset(&arena);
	CHECK(pr_arena_strdup(&arena, "again") == small);
	pr_arena_release(&arena);
	CHECK(!pr_arena_alloc(&arena, SIZE_MAX));
	CHECK(!pr_arena_alloc(&arena, SIZE_MAX / 2 + 1));
	pr_arena_release(&arena);
}

TEST(arena_copies_end_in_nul)
{
	struct pr_arena arena = { 0 };
	char *copy = pr_arena_copy(&arena, "ab\0cd", 5);

	CHECK(memcmp(copy, "ab\0cd", 6) == 0);
	CHECK_STR(pr_arena_copy(&arena, NULL, 0), "");
	CHECK_STR(pr_arena_printf(&arena, "%s-%d", "x", 7), "x-7");
	pr_arena_release(&arena);
}

TEST(D8_buf_past_its_maximum_fails_and_stays_failed)
{
	struct pr_buf buf = { .max = 10 };

	pr_buf_puts(&buf, "12345");
	pr_buf_puts(&buf, "67890");
	CHECK(!buf.failed);
	pr_buf_putc(&buf, 'x');
	CHECK(buf.failed);
	/* Would fit, but comes after the failure. */
	buf.len = 5;
	pr_buf_putc(&buf, 'y');
	pr_buf_printf(&buf, "%d", 1);
	CHECK(!pr_buf_reserve(&buf, 1));
	CHECK_INT(buf.len, 5);
	pr_buf_reset(&buf);
	CHECK(!buf.failed);
	pr_buf_puts(&buf, "again");
	CHECK_STR(pr_buf_text(&buf), "again");
	pr_buf_release(&buf);
	CHECK_INT(buf.max, 10);
}

TEST(buf_grows_and_ends_in_nul)
{
	struct pr_buf buf = { 0 };

	CHECK_STR(pr_buf_text(&buf), "");
	pr_buf_append(&buf, NULL, 0);
	CHECK_STR(pr_buf_text(&buf), "");
	for (int i = 0; i < 10000; i++) {
		pr_buf_printf(&buf, "%d,", i % 10);
		CHECK_INT(strlen(buf.data), buf.len);
	}
	CHECK_INT(buf.len, 20000);
	pr_buf_release(&buf);
	CHECK(!buf.data);
}

TEST(err_keeps_status_code_and_sentence)
{
	struct pr_err err = { 0 };
	char word[2000];

	CHECK_INT(pr_err_set(&err, POSTROOM_INVALID, "topic %s", "is empty"), POSTROOM_INVALID);
	CHECK_INT(err.status, POSTROOM_INVALID);
	CHECK_STR(err.text, "topic is empty");
	CHECK_INT(pr_err_prefix(&err, "message %d", 17), POSTROOM_INVALID);
	CHECK_STR(err.text, "message 17: topic is empty");

	errno = ENOSPC;
	CHECK_INT(pr_err_errno(&err, POSTROOM_DATABASE, "writing %s", "x"), POSTROOM_DATABASE);
	CHECK_INT(err.native, ENOSPC);
	CHECK_CONTAINS(err.text, "writing x: No space left");
	CHECK_INT(pr_err_nomem(&err), POSTROOM_NOMEM);
	pr_err_clear(&err);
	CHECK_INT(err.status, POSTROOM_OK);
	CHECK_STR(err.text, "");
	CHECK_INT(pr_err_set(NULL, POSTROOM_BUSY, "x"), POSTROOM_BUSY);

	/* However long, it ends inside the struct. */
	memset(word, 'w', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	pr_err_set(&err, POSTROOM_INVALID, "%s", word);
	CHECK_INT(strlen(err.text), sizeof(err.text) - 1);
	pr_err_prefix(&err, "%s", word);
	CHECK_INT(strlen(err.text), sizeof(err.text) - 1);
	errno = EIO;
	pr_err_errno(&err, POSTROOM_INVALID, "%s", word);
	CHECK_INT(strlen(err.text), sizeof(err.text) - 1);
}
