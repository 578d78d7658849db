/* SPDX-License-Identifier: Apache-2.0 */
/* pr_assert() as a build with NDEBUG compiles it. */
#undef NDEBUG
#define NDEBUG 1
#include "base/assert.h"

void assert_release(int value);

void assert_release(int value)
{
	pr_assert(value == 1);
}
