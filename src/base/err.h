/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong, on the caller's stack: filled where it fails, given context
 * on the way up, nothing to free.
 */
#ifndef PR_BASE_ERR_H
#define PR_BASE_ERR_H

#include <postroom.h>

struct pr_err {
	int status; /* POSTROOM_… */
	int native; /* SQLite result code, errno, …; 0 if none */
	char sqlstate[6]; /* PostgreSQL's code; "" if none */
	char text[1000];
};

/* Sets the error and returns status, so that `return pr_err_set(…)` reads well. err may be NULL. */
int pr_err_set(struct pr_err *err, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with errno's own words behind it and native = errno. */
int pr_err_errno(struct pr_err *err, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "format: " before what stands there and returns err->status. */
int pr_err_prefix(struct pr_err *err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

int pr_err_nomem(struct pr_err *err);

void pr_err_clear(struct pr_err *err);

#endif
