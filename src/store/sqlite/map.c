/* SPDX-License-Identifier: Apache-2.0 */
/* Maps from numbers to numbers, for claims and settles that look up many keys. */
#include "store/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

static struct sqlite_pair *map_find(const struct sqlite_map *map, int64_t key)
{
	size_t mask = map->size - 1, at = (size_t)key & mask;

	while (map->pairs[at].key && map->pairs[at].key != key)
		at = (at + 1) & mask;
	return &map->pairs[at];
}

int64_t pr_sqlite_map_get(const struct sqlite_map *map, int64_t key, int64_t otherwise)
{
	const struct sqlite_pair *pair = map->used ? map_find(map, key) : NULL;

	return pair && pair->key ? pair->value : otherwise;
}

/* Keeps the smallest value of a key. */
bool pr_sqlite_map_put(struct sqlite_map *map, int64_t key, int64_t value)
{
	struct sqlite_pair *pair;

	if (map->used * 2 >= map->size) {
		struct sqlite_map more = { .size = map->size ? map->size * 2 : 1024,
					   .used = map->used };

		more.pairs = calloc(more.size, sizeof(*more.pairs));
		if (!more.pairs)
			return false;
		for (size_t i = 0; i < map->size; i++) {
			if (map->pairs[i].key)
				*map_find(&more, map->pairs[i].key) = map->pairs[i];
		}
		free(map->pairs);
		*map = more;
	}
	pair = map_find(map, key);
	map->used += !pair->key;
	if (!pair->key || value < pair->value)
		*pair = (struct sqlite_pair){ key, value };
	return true;
}

void pr_sqlite_map_clear(struct sqlite_map *map)
{
	if (map->used)
		memset(map->pairs, 0, map->size * sizeof(*map->pairs));
	map->used = 0;
}

/* Two keys with the same hash only take each other for one, and wait for each other. */
int64_t pr_sqlite_hash_key(const char *key, const char *topic, const char *ns)
{
	const char *parts[] = { key, topic, ns };
	uint64_t sum = 14695981039346656037u; /* FNV-1a */

	for (size_t i = 0; i < 3; i++) {
		for (const char *at = parts[i]; at && *at; at++)
			sum = (sum ^ (unsigned char)*at) * 1099511628211u;
		sum = (sum ^ 0xff) * 1099511628211u;
	}
	return sum ? (int64_t)sum : 1;
}
