/* SPDX-License-Identifier: Apache-2.0 */
/* The files of schema/, embedded by tools/embed; each array ends with version 0. */
#ifndef PR_STORE_SCHEMA_H
#define PR_STORE_SCHEMA_H

#include "store/store.h"

extern const struct pr_migration pr_schema_sqlite[];

#endif
