/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations of the files that load a configuration. */
#ifndef PR_CONFIG_LOAD_H
#define PR_CONFIG_LOAD_H

#include "config/config.h"

struct pr_variable;

struct pr_loading {
	struct pr_arena *arena;
	const char *file;
	struct pr_faults *faults;
	struct pr_variable *variables; /* that there are, set or not */
	bool nomem;
};

/* One value of a section, and where it may come from beside the environment. */
struct pr_wanted {
	const char *section; /* "sinks.hooks"; NULL: none */
	const char *name;    /* "secret" */
	const struct pr_param *param;
	const struct pr_yaml *map; /* the section in the file; NULL: it has none */
	const char *given;	   /* on the command line; NULL: not there */
	void *target;
};

/*
 * Finds the value, sets the target's field, and appends it at *last, which moves
 * on. The default is appended too, but the field left alone: it has it already.
 */
void pr_load_value(struct pr_loading *loading, const struct pr_wanted *wanted,
		   struct pr_config_value ***last);

/* Every member of a map must be one of names, which end in NULL. */
void pr_load_check_names(struct pr_loading *loading, const char *section, const struct pr_yaml *map,
			 const char *const *names, const char *advice);

/* Every variable that begins like one of a section must be one of those that were asked for. */
void pr_load_check_variables(struct pr_loading *loading, const char *section);

/* Adds a table's names, as files contain them, to names, which has room for PR_NAMES_MAX and a NULL. */
#define PR_NAMES_MAX 127
void pr_load_add_names(struct pr_loading *loading, const struct pr_param *params,
		       const char **names);

/* node, or NULL if there is none, nothing in it, or something else than a map or list (a fault). */
const struct pr_yaml *pr_load_want(struct pr_loading *loading, const char *path,
				   const struct pr_yaml *node, enum pr_yaml_kind kind);

char *pr_load_printf(struct pr_loading *loading, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void *pr_load_alloc(struct pr_loading *loading, size_t size); /* zeroed; NULL: no memory */

/* sections.c */
void pr_load_sections(struct pr_loading *loading, const struct pr_config_section *sections,
		      const struct pr_yaml *tree, struct pr_config_value **ret);

/* sinks.c: sinks: and routes: into config. */
void pr_load_sinks(struct pr_loading *loading, const struct pr_yaml *tree,
		   struct pr_config *config);
/* The one sink of --to, for every message. */
void pr_load_to(struct pr_loading *loading, const char *url, struct pr_config *config);

#endif
