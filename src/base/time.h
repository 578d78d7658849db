/* SPDX-License-Identifier: Apache-2.0 */
/* Times are microseconds (…_us), durations milliseconds (…_ms), both int64_t. */
#ifndef PR_BASE_TIME_H
#define PR_BASE_TIME_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

int64_t pr_now_us(void); /* wall clock: microseconds since 1970 */

/* For deadlines: never jumps, and advances while the machine is suspended. */
int64_t pr_mono_us(void);

/*
 * "250ms", "5s", "10m", "2h", "7d", "1.5s"; "0" alone needs no unit.
 * Negative, overflowing or unit-less values are POSTROOM_INVALID.
 */
int pr_duration_parse(const char *text, int64_t *ret_ms, struct pr_err *err);

#define PR_DURATION_SIZE 32
/* The shortest form that pr_duration_parse() reads back: "250ms", "90s", "2h". */
void pr_duration_format(int64_t ms, char out[PR_DURATION_SIZE]);

/* Messages per second: "500/s", "30/m", "1000/h"; a number alone is per second. */
int pr_rate_parse(const char *text, double *ret, struct pr_err *err);

#define PR_RFC3339_SIZE 40
/* "2026-11-15T21:37:42.123456Z" */
void pr_rfc3339(int64_t time_us, char out[PR_RFC3339_SIZE]);
/*
 * The reverse: "2026-11-15T21:37:42Z", with up to nine digits of a second and any offset, between
 * the years 1970 and 9999. Anything else is POSTROOM_INVALID.
 */
int pr_rfc3339_parse(const char *text, int64_t *ret_us, struct pr_err *err);

#endif
