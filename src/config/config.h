/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: a YAML file, above it the environment, above that the
 * command line. Every value has a path, as in relay.batch_size; its variable is
 * the path in capitals behind POSTROOM_ (POSTROOM_RELAY_BATCH_SIZE), the
 * database's is POSTROOM_DB. In the file ${NAME} stands for any variable, $${ for
 * the two characters themselves.
 *
 * The table of the command's options describes relay: and retention::
 * retention.delivered is the option retention, retention.dedupe is
 * dedupe-retention; every other one is relay.<name>.
 */
#ifndef PR_CONFIG_CONFIG_H
#define PR_CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/param.h"
#include "config/yaml.h"
#include "relay/relay.h"

/*
 * A section with a table of its own, such as "admin" or "health.backlog", whose values are not
 * options. Only a parameter that is named like its section is one: it is listen in the file.
 */
struct pr_config_section {
	const char *name;
	const struct pr_param *params;
	const char *given; /* that option's text; NULL: not given */
	void *target;
};

struct pr_config_input {
	const char *file;     /* NULL: none */
	const char *database; /* from the command line; NULL: not there */
	const char *to;	      /* from the command line: then sinks: and routes: are not read */
	const struct pr_param *params; /* of relay: and retention: */
	const char *const
		*given; /* the command line's texts, in the order of params; NULL: not given */
	void *target; /* the struct that params fill; its strings live as long as the configuration */
	const struct pr_config_section *sections; /* ends with name NULL; NULL: none */
};

struct pr_config_value {
	const char *path;	      /* "relay.batch_size" */
	const char *name;	      /* "batch_size" */
	const char *text;	      /* NULL: none, and no default */
	const char *shown;	      /* what people may see of it */
	const char *where;	      /* "FILE:LINE", "$VARIABLE", "--option" or "default" */
	const struct pr_param *param; /* NULL: a text */
	struct pr_config_value *next;
};

/* A sink or a route, with all settings that were given. */
struct pr_config_part {
	const char *name; /* of a sink */
	struct pr_config_value *values;
};

struct pr_config {
	struct pr_arena arena; /* everything below lives in it */
	const char *file;
	struct pr_config_value *database;
	struct pr_config_value *values;		/* one for each of the params */
	struct pr_config_value *section_values; /* the same of the sections */
	struct pr_relay_sink *sinks;
	struct pr_relay_route *routes;
	size_t sink_count, route_count;
	struct pr_config_part *sink_parts, *route_parts; /* as sinks and routes */
};

/*
 * Loads and checks everything, and opens nothing. Faults are added to faults, one per line, and err
 * has the first of them with POSTROOM_INVALID. Any number of configurations can be in use at once.
 */
int pr_config_load(const struct pr_config_input *input, struct pr_config **ret,
		   struct pr_faults *faults, struct pr_err *err);
void pr_config_free(struct pr_config *config);

/* The sections alone, and of the rest of the file nothing. */
int pr_config_load_sections(const char *file, const struct pr_config_section *sections,
			    struct pr_config **ret, struct pr_faults *faults, struct pr_err *err);
/* Where a value of a section comes from, as in pr_config_value; NULL: no such value. */
const char *pr_config_where(const struct pr_config *config, const char *path);

/*
 * A fault found later, in what the params say together. The text begins with a
 * param's name; of those that it names, the first that was given takes the blame.
 */
void pr_config_blame(const struct pr_config *config, const char *text, struct pr_faults *faults);

/* The environment's database, else the file's, else the default, for those who need no more. */
int pr_config_database(const char *file, struct pr_arena *arena, struct pr_faults *faults,
		       const char **ret, struct pr_err *err);

/* print.c: the effective configuration with secrets hidden; the YAML can be loaded again. */
void pr_config_put_yaml(const struct pr_config *config, const void *target, struct pr_buf *out);
void pr_config_put_json(const struct pr_config *config, const void *target, struct pr_buf *out);

#endif
