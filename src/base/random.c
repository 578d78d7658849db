/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include <string.h>
#include <sys/random.h>

static void refill(struct pr_random *random)
{
	size_t have = 0;

	/* Requests of up to 256 bytes are never short. EINTR can only happen before the pool is
	 * seeded. */
	while (have < sizeof(random->pool)) {
		ssize_t got = getrandom(random->pool + have, 256, 0);

		if (got > 0)
			have += (size_t)got;
	}
	random->left = sizeof(random->pool);
}

void pr_random_fill(struct pr_random *random, void *out, size_t len)
{
	char *at = out;

	while (len > 0) {
		size_t part;

		if (random->left == 0)
			refill(random);
		part = len < random->left ? len : random->left;
		memcpy(at, random->pool + sizeof(random->pool) - random->left, part);
		random->left -= part;
		at += part;
		len -= part;
	}
}

uint64_t pr_random_u64(struct pr_random *random)
{
	uint64_t value;

	pr_random_fill(random, &value, sizeof(value));
	return value;
}

int64_t pr_random_between(struct pr_random *random, int64_t low, int64_t high)
{
	uint64_t span = (uint64_t)high - (uint64_t)low + 1;
	uint64_t limit, value;

	if (span == 0)
		return (int64_t)pr_random_u64(random);
	/* Values past the last whole multiple of span would favor the low end. */
	limit = UINT64_MAX - UINT64_MAX % span;
	do {
		value = pr_random_u64(random);
	} while (value >= limit);
	return (int64_t)((uint64_t)low + value % span);
}
