/* SPDX-License-Identifier: Apache-2.0 */
/* The completed steps of a job, as in the column steps: {"NAME": {"result": …, "at": …}, …}. */
#ifndef PR_INBOX_STEP_H
#define PR_INBOX_STEP_H

#include "base/arena.h"
#include "base/err.h"

struct pr_step {
	struct pr_step *next;
	const char *name;
	const char *result; /* JSON */
	const char *at;	    /* completion time, as RFC 3339 in UTC: texts compare as times do */
};

/* In the order they were done. A zeroed one is empty. */
struct pr_steps {
	struct pr_step *first, *last;
};

/* Check a step's name, and its result or a job's checkpoint. NULL is missing. */
int pr_step_check(const char *name, struct pr_err *err);
int pr_progress_check(const char *field, const char *json, struct pr_err *err);

/* Parses the column, which the table has checked; the arena holds the memory. */
int pr_steps_read(struct pr_steps *steps, const char *json, struct pr_arena *arena,
		  struct pr_err *err);
void pr_steps_add(struct pr_steps *steps, struct pr_step *step);
/* NULL: it has not been done. */
struct pr_step *pr_steps_find(const struct pr_steps *steps, const char *name);

#endif
