/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_SIZE ((size_t)64 * 1024)
#define ALIGN sizeof(max_align_t)

struct pr_arena_chunk {
	struct pr_arena_chunk *next;
	size_t size;
	size_t used;
	max_align_t data[];
};

static struct pr_arena_chunk *new_chunk(size_t size)
{
	struct pr_arena_chunk *chunk = malloc(sizeof(*chunk) + size);

	if (chunk)
		*chunk = (struct pr_arena_chunk){ .size = size };
	return chunk;
}

/* Returns the next chunk with room, or a new one after the current. Kept chunks are used in order.
 */
static struct pr_arena_chunk *chunk_with_room(struct pr_arena *arena, size_t size)
{
	struct pr_arena_chunk *chunk = arena->current;

	for (; chunk; chunk = chunk->next) {
		if (chunk->size - chunk->used >= size)
			return chunk;
	}
	chunk = new_chunk(size > CHUNK_SIZE ? size : CHUNK_SIZE);
	if (!chunk)
		return NULL;
	if (arena->current) {
		chunk->next = arena->current->next;
		arena->current->next = chunk;
	} else {
		arena->first = chunk;
	}
	return chunk;
}

void *pr_arena_alloc(struct pr_arena *arena, size_t size)
{
	struct pr_arena_chunk *chunk;
	void *data;

	if (size > PTRDIFF_MAX - ALIGN)
		return NULL;
	size = (size + ALIGN - 1) / ALIGN * ALIGN;
	chunk = chunk_with_room(arena, size);
	if (!chunk)
		return NULL;
	/* An oversize chunk is full at once: continuing after it would waste the rest of the
	 * current one. */
	if (chunk->size <= CHUNK_SIZE)
		arena->current = chunk;
	else if (!arena->current)
		arena->current = chunk;
	data = (char *)chunk->data + chunk->used;
	chunk->used += size;
	arena->used += size;
	return data;
}

void *pr_arena_copy(struct pr_arena *arena, const void *data, size_t size)
{
	char *copy = pr_arena_alloc(arena, size + 1);

	if (!copy)
		return NULL;
	if (size)
		memcpy(copy, data, size);
	copy[size] = '\0';
	return copy;
}

char *pr_arena_strdup(struct pr_arena *arena, const char *text)
{
	return pr_arena_copy(arena, text, strlen(text));
}

char *pr_arena_vprintf(struct pr_arena *arena, const char *format, va_list args)
{
	va_list again;
	char *text;
	int len;

	va_copy(again, args);
	len = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (len < 0)
		return NULL;
	text = pr_arena_alloc(arena, (size_t)len + 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, format, args);
	return text;
}

char *pr_arena_printf(struct pr_arena *arena, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = pr_arena_vprintf(arena, format, args);
	va_end(args);
	return text;
}

void pr_arena_reset(struct pr_arena *arena)
{
	struct pr_arena_chunk **at = &arena->first;

	while (*at) {
		struct pr_arena_chunk *chunk = *at;

		if (chunk->size > CHUNK_SIZE) {
			*at = chunk->next;
			free(chunk);
		} else {
			chunk->used = 0;
			at = &chunk->next;
		}
	}
	arena->current = arena->first;
	arena->used = 0;
}

void pr_arena_release(struct pr_arena *arena)
{
	struct pr_arena_chunk *chunk = arena->first;

	while (chunk) {
		struct pr_arena_chunk *next = chunk->next;

		free(chunk);
		chunk = next;
	}
	*arena = (struct pr_arena){ 0 };
}
