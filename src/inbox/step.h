/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that a job has done, as the column steps has them: {"NAME": {"result": …, "at": …}, …}. */
#ifndef PR_INBOX_STEP_H
#define PR_INBOX_STEP_H

#include "base/arena.h"
#include "base/err.h"

struct pr_step {
	struct pr_step *next;
	const char *name;
	const char *result; /* JSON */
	const char *at;	    /* when it was done, as RFC 3339 in UTC: texts compare as times do */
};

/* In the order they were done. A zeroed one is empty. */
struct pr_steps {
	struct pr_step *first, *last;
};

/* A step's name, and its result or a job's checkpoint, as they may come in. NULL is missing. */
int pr_step_check(const char *name, struct pr_err *err);
int pr_progress_check(const char *field, const char *json, struct pr_err *err);

/* Reads what the table has checked; all of it lives in the arena. */
int pr_steps_read(struct pr_steps *steps, const char *json, struct pr_arena *arena,
		  struct pr_err *err);
void pr_steps_add(struct pr_steps *steps, struct pr_step *step);
/* NULL: it has not been done. */
struct pr_step *pr_steps_find(const struct pr_steps *steps, const char *name);

#endif
