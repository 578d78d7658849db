/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table describes parameters: it parses, checks, gives defaults and prints
 * help, for command-line options, sink settings and the configuration file.
 */
#ifndef PR_BASE_PARAM_H
#define PR_BASE_PARAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pr_param_type {
	PR_PARAM_STRING,   /* const char *, borrowed from the text given */
	PR_PARAM_FLAG,	   /* bool; as an option it takes no value */
	PR_PARAM_INT,	   /* int64_t */
	PR_PARAM_DURATION, /* int64_t milliseconds: "5s" */
	PR_PARAM_PERIOD,   /* the same, or -1 for "never" */
	PR_PARAM_SIZE,	   /* int64_t bytes: "64k", "1M", "8MiB" (1024s) */
	PR_PARAM_CHOICE,   /* int64_t: index into choices */
	PR_PARAM_LIST,	   /* struct pr_param_list: may be given several times */
};

#define PR_PARAM_LIST_MAX 64
struct pr_param_list {
	const char *items[PR_PARAM_LIST_MAX];
	size_t count;
};

struct pr_param {
	/*
	 * "batch-size"; '_' and '-' are equal in lookups. A name that ends in '*' is a
	 * PR_PARAM_LIST of all settings with that prefix: the rest of each name, then its value.
	 */
	const char *name;
	char letter; /* short option, or 0 */
	enum pr_param_type type;
	size_t offset;		    /* of the field in the target struct */
	const char *value;	    /* how help names the value: "DUR" */
	const char *fallback;	    /* default, as text; NULL: zero */
	int64_t min, max;	    /* for numbers; max 0: no limit above */
	const char *const *choices; /* for PR_PARAM_CHOICE, ends in NULL */
	const char *help;
};

/* A table ends with an entry whose name is NULL. */
void pr_params_defaults(const struct pr_param *table, void *target);
/* '_' and '-' are the same. */
bool pr_param_same_name(const char *a, const char *b);
/* The same for a name in a table, which may end in '*'. */
bool pr_param_matches(const char *known, const char *name);
const struct pr_param *pr_param_find(const struct pr_param *table, const char *name);

/* Parses text into the target's field. The error names the parameter and its accepted values. */
int pr_param_set(const struct pr_param *param, void *target, const char *text, struct pr_err *err);

/* pr_param_find() and pr_param_set(); an unknown name's error offers the nearest one. */
int pr_params_set(const struct pr_param *table, void *target, const char *name, const char *text,
		  struct pr_err *err);

/* The nearest name in the table to a mistyped one, or NULL. */
const char *pr_param_nearest(const struct pr_param *table, const char *name);

#endif
