/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A configuration owns all its strings, and those of the target's fields: it
 *    can be loaded again while the old one is in use.
 * 2. There is no global state but the environment, which is only read.
 * 3. A fault in one section never hides those in another.
 */
#include "config/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pr_param database_param = {
	.name = "db",
	.type = PR_PARAM_STRING,
	.fallback = "sqlite:postroom.db",
};

/* The line of an option's value in the file. */
static void home_of(struct pr_loading *loading, const struct pr_param *param,
		    struct pr_wanted *wanted)
{
	static const char suffix[] = "-retention";
	size_t len = strlen(param->name);
	size_t head = len > strlen(suffix) ? len - strlen(suffix) : 0;
	char *name;

	wanted->section = "retention";
	if (strcmp(param->name, suffix + 1) == 0) {
		wanted->name = "delivered";
	} else if (head > 0 && strcmp(param->name + head, suffix) == 0) {
		wanted->name = pr_load_printf(loading, "%.*s", (int)head, param->name);
	} else {
		wanted->section = "relay";
		wanted->name = name = pr_load_printf(loading, "%s", param->name);
		for (; name && *name; name++)
			*name = *name == '-' ? '_' : *name;
	}
}

static void load_section(struct pr_loading *loading, const struct pr_config_input *input,
			 const struct pr_yaml *tree, const char *section,
			 struct pr_config_value ***last)
{
	const struct pr_yaml *node = tree ? pr_yaml_find(tree, section) : NULL;
	const struct pr_yaml *map = pr_load_want(loading, section, node, PR_YAML_MAP);
	const char *names[PR_NAMES_MAX + 1];
	size_t count = 0;

	for (size_t i = 0; input->params[i].name && count < PR_NAMES_MAX; i++) {
		const struct pr_param *param = &input->params[i];
		struct pr_wanted wanted = {
			.param = param,
			.map = map,
			.given = input->given ? input->given[i] : NULL,
			.target = input->target,
		};

		home_of(loading, param, &wanted);
		if (!wanted.name || strcmp(wanted.section, section) != 0)
			continue;
		names[count++] = wanted.name;
		pr_load_value(loading, &wanted, last);
	}
	names[count] = NULL;
	pr_load_check_names(loading, section, map, names, NULL);
}

static void load_database(struct pr_loading *loading, const char *given, const struct pr_yaml *tree,
			  struct pr_config_value **ret)
{
	const char *text; /* the value itself is what counts */
	const struct pr_wanted wanted = {
		.name = "database",
		.param = &database_param,
		.map = tree,
		.given = given,
		.target = (void *)&text,
	};

	pr_load_value(loading, &wanted, &ret);
}

static void load_all(struct pr_loading *loading, const struct pr_config_input *input,
		     const struct pr_yaml *tree, struct pr_config *config)
{
	static const char *const names[] = { "database",  "relay", "sinks",  "routes",
					     "retention", "admin", "health", NULL };
	struct pr_config_value **last = &config->values;

	pr_params_defaults(input->params, input->target);
	pr_load_check_names(loading, NULL, tree, names, NULL);
	load_database(loading, input->database, tree, &config->database);
	load_section(loading, input, tree, "relay", &last);
	load_section(loading, input, tree, "retention", &last);
	if (input->sections)
		pr_load_sections(loading, input->sections, tree, &config->section_values);
	if (input->to)
		pr_load_to(loading, input->to, config);
	else if (tree)
		pr_load_sinks(loading, tree, config);
	pr_load_check_variables(loading, "relay");
	pr_load_check_variables(loading, "retention");
	/* With --to they are not read, and may be there for the file. */
	if (!input->to && tree) {
		pr_load_check_variables(loading, "sinks");
		pr_load_check_variables(loading, "routes");
	}
}

/* The first fault is the error's text. */
static int judge(const struct pr_loading *loading, struct pr_err *err)
{
	const struct pr_faults *faults = loading->faults;
	const char *text = pr_buf_text(&faults->text);
	char more[40] = "";

	if (loading->nomem || faults->text.failed)
		return pr_err_nomem(err);
	if (faults->count == 0)
		return POSTROOM_OK;
	if (faults->count > 1)
		snprintf(more, sizeof(more), " (and %zu more)", faults->count - 1);
	return pr_err_set(err, POSTROOM_INVALID, "%.*s%s", (int)strcspn(text, "\n"), text, more);
}

/* Returns the configuration, or frees it if it could not be read or has faults. */
static int finish(const struct pr_loading *loading, int status, struct pr_config *config,
		  struct pr_config **ret, struct pr_err *err)
{
	if (status >= 0)
		status = judge(loading, err);
	if (status < 0) {
		pr_config_free(config);
		return status;
	}
	*ret = config;
	return POSTROOM_OK;
}

int pr_config_load(const struct pr_config_input *input, struct pr_config **ret,
		   struct pr_faults *faults, struct pr_err *err)
{
	struct pr_config *config = calloc(1, sizeof(*config));
	struct pr_loading loading = { .file = input->file, .faults = faults };
	struct pr_yaml *tree = NULL;
	int status = POSTROOM_OK;

	if (!config)
		return pr_err_nomem(err);
	loading.arena = &config->arena;
	if (input->file) {
		config->file = loading.file = pr_load_printf(&loading, "%s", input->file);
		status = config->file
				 ? pr_yaml_read(config->file, &config->arena, faults, &tree, err)
				 : pr_err_nomem(err);
	}
	/* Without its tree, nothing is known about what the file leaves out. */
	if (status >= 0 && (tree || !input->file))
		load_all(&loading, input, tree, config);
	return finish(&loading, status, config, ret, err);
}

void pr_config_free(struct pr_config *config)
{
	if (!config)
		return;
	pr_arena_release(&config->arena);
	free(config);
}

void pr_config_blame(const struct pr_config *config, const char *text, struct pr_faults *faults)
{
	const struct pr_config_value *guilty = NULL;
	size_t guilty_at = SIZE_MAX;

	for (const struct pr_config_value *value = config->values; value; value = value->next) {
		const char *found = strstr(text, value->param->name);

		if (found && strcmp(value->where, "default") != 0 &&
		    (size_t)(found - text) < guilty_at) {
			guilty = value;
			guilty_at = (size_t)(found - text);
		}
	}
	if (!guilty)
		pr_fault(faults, "%s", text);
	else if (strncmp(guilty->where, "--", 2) == 0)
		pr_fault(faults, "%s%s", guilty_at == 0 ? "--" : "", text);
	else if (guilty_at == 0)
		pr_fault(faults, "%s: %s%s", guilty->where, guilty->path,
			 text + strlen(guilty->param->name));
	else
		pr_fault(faults, "%s: %s: %s", guilty->where, guilty->path, text);
}

int pr_config_load_sections(const char *file, const struct pr_config_section *sections,
			    struct pr_config **ret, struct pr_faults *faults, struct pr_err *err)
{
	struct pr_config *config = calloc(1, sizeof(*config));
	struct pr_loading loading = { .file = file, .faults = faults };
	struct pr_yaml *tree = NULL;
	int status = POSTROOM_OK;

	if (!config)
		return pr_err_nomem(err);
	loading.arena = &config->arena;
	if (file)
		status = pr_yaml_read(file, &config->arena, faults, &tree, err);
	if (status >= 0 && (tree || !file))
		pr_load_sections(&loading, sections, tree, &config->section_values);
	return finish(&loading, status, config, ret, err);
}

int pr_config_database(const char *file, struct pr_arena *arena, struct pr_faults *faults,
		       const char **ret, struct pr_err *err)
{
	struct pr_loading loading = { .arena = arena, .file = file, .faults = faults };
	struct pr_config_value *value = NULL;
	struct pr_yaml *tree = NULL;
	int status = pr_yaml_read(file, arena, faults, &tree, err);

	if (status < 0)
		return status;
	if (tree)
		load_database(&loading, NULL, tree, &value);
	status = judge(&loading, err);
	if (status < 0)
		return status;
	*ret = value ? value->text : NULL;
	return POSTROOM_OK;
}
