/* SPDX-License-Identifier: Apache-2.0 */
/* A separate file, so that a test can link a program of another version. */
#include <postroom.h>

const char *postroom_version(void)
{
	return POSTROOM_VERSION;
}
