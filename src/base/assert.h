/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks an invariant of the program itself, such as the bounds of an array that the code fills.
 * A violation is a bug: to continue would corrupt memory or data, so the process ends.
 * Never use it for input, for answers of a server, or for memory that could not be allocated.
 *
 * The check is one comparison, and is part of every build. With NDEBUG it does not print.
 */
#ifndef PR_BASE_ASSERT_H
#define PR_BASE_ASSERT_H

#ifdef NDEBUG
#define pr_assert(condition) (__builtin_expect(!(condition), 0) ? __builtin_trap() : (void)0)
#else
#include <assert.h>
#define pr_assert(condition) assert(condition)
#endif

#endif
