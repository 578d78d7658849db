/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes from the kernel, fetched a page at a time: no system call per message. */
#ifndef PR_BASE_RANDOM_H
#define PR_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct pr_random {
	unsigned char pool[512];
	size_t left;
};

/* A zeroed pr_random is ready for use; one owner at a time, not across fork(). */
void pr_random_fill(struct pr_random *random, void *out, size_t len);
uint64_t pr_random_u64(struct pr_random *random);
/* Uniform in [low, high]. */
int64_t pr_random_between(struct pr_random *random, int64_t low, int64_t high);

#endif
