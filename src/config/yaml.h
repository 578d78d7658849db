/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML file as a tree that remembers its lines, and the list of what is wrong with it. */
#ifndef PR_CONFIG_YAML_H
#define PR_CONFIG_YAML_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PR_YAML_BYTES_MAX ((size_t)1024 * 1024)
#define PR_YAML_DEPTH_MAX 8
#define PR_YAML_MEMBERS_MAX 2000
#define PR_FAULTS_MAX 20

/* Faults, one line each. The first PR_FAULTS_MAX are kept. */
struct pr_faults {
	struct pr_buf text;
	size_t count;
};

void pr_fault(struct pr_faults *faults, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void pr_faults_release(struct pr_faults *faults);

enum pr_yaml_kind { PR_YAML_SCALAR, PR_YAML_LIST, PR_YAML_MAP };

struct pr_yaml {
	enum pr_yaml_kind kind;
	int line;
	const char *name;      /* of a map's member, else NULL */
	const char *text;      /* of a scalar, else NULL */
	bool empty;	       /* a scalar that says nothing: no text, ~ or null, unquoted */
	struct pr_yaml *first; /* of a list's or map's members */
	struct pr_yaml *next;  /* beside this one */
};

/*
 * Parses the one document of a file, which must be a map. Faults are added to faults, with the
 * file's name, and *ret is NULL then. Names and strings live in the arena. Fails only without
 * memory.
 */
int pr_yaml_read(const char *file, struct pr_arena *arena, struct pr_faults *faults,
		 struct pr_yaml **ret, struct pr_err *err);

struct pr_yaml *pr_yaml_find(const struct pr_yaml *map, const char *name);

#endif
