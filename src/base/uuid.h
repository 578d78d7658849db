/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PR_BASE_UUID_H
#define PR_BASE_UUID_H

#include "base/random.h"

#include <stdbool.h>

#define PR_UUID_SIZE 37 /* 36 characters and a NUL */

struct pr_uuid_gen {
	struct pr_random random;
	int64_t last_ms;
	unsigned counter;
};

/*
 * UUIDv7 that grow within one generator: milliseconds, then a 12-bit counter with a random start in
 * each millisecond, then 62 random bits.
 */
void pr_uuid_v7(struct pr_uuid_gen *gen, int64_t now_us, char out[PR_UUID_SIZE]);
void pr_uuid_v4(struct pr_random *random, char out[PR_UUID_SIZE]);
/* Accepts 32 hex digits in either case, with or without hyphens; writes hyphens and lower case. */
bool pr_uuid_normalize(const char *text, char out[PR_UUID_SIZE]);
void pr_uuid_format(const unsigned char bytes[16], char out[PR_UUID_SIZE]);

#endif
