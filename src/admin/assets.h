/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are part of the program; tools/embed-files makes the arrays. */
#ifndef PR_ADMIN_ASSETS_H
#define PR_ADMIN_ASSETS_H

#include <stddef.h>

struct pr_asset {
	const char *name;
	const unsigned char *data; /* a NUL follows it */
	size_t len;
};

/* Each ends with name NULL. */
extern const struct pr_asset pr_page_assets[];
extern const struct pr_asset pr_schema_assets[];

#endif
