/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An error on the caller's stack. The failing function fills it, callers add context, and nothing
 * needs to be freed.
 */
#ifndef PR_BASE_ERR_H
#define PR_BASE_ERR_H

#include <postroom.h>

struct pr_err {
	int status;	  /* POSTROOM_… */
	int native;	  /* SQLite result code, errno, …; 0 if none */
	char sqlstate[6]; /* PostgreSQL's code; "" if none */
	char text[1000];
};

/* Sets the error and returns status, so that `return pr_err_set(…)` reads well. err may be NULL. */
int pr_err_set(struct pr_err *err, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with strerror(errno) appended and native = errno. */
int pr_err_errno(struct pr_err *err, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "format: " before the text and returns err->status. */
int pr_err_prefix(struct pr_err *err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

int pr_err_nomem(struct pr_err *err);

void pr_err_clear(struct pr_err *err);

#endif
