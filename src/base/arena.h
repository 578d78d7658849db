/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: memory that is freed all at once. After warm-up, a reset-and-fill cycle allocates
 * nothing.
 */
#ifndef PR_BASE_ARENA_H
#define PR_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct pr_arena_chunk;

struct pr_arena {
	struct pr_arena_chunk *first;
	struct pr_arena_chunk *current;
	size_t used; /* bytes handed out since the last reset */
};

/* A zeroed arena is ready for use. All return NULL when there is no memory. */
void *pr_arena_alloc(struct pr_arena *arena, size_t size);
void *pr_arena_copy(struct pr_arena *arena, const void *data, size_t size); /* appends a NUL */
char *pr_arena_strdup(struct pr_arena *arena, const char *text);
char *pr_arena_vprintf(struct pr_arena *arena, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));
char *pr_arena_printf(struct pr_arena *arena, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Keeps ordinary chunks for reuse; frees chunks made for one oversize value. */
void pr_arena_reset(struct pr_arena *arena);
void pr_arena_release(struct pr_arena *arena);

#endif
