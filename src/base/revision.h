/* SPDX-License-Identifier: Apache-2.0 */
/* The commit of a source tarball, and the compiler. A checkout has no commit: its files may differ
 * from every one. */
#ifndef PR_BASE_REVISION_H
#define PR_BASE_REVISION_H

/* 40 hex digits, or "unknown" in a build from a checkout. */
const char *pr_revision(void);

/* When it was committed, such as 2026-11-18T14:20:08+00:00, or "unknown". */
const char *pr_revision_date(void);

/* Name and version of the compiler, such as "gcc 12.2.0". */
const char *pr_compiler(void);

#endif
