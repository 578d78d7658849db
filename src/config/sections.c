/* SPDX-License-Identifier: Apache-2.0 */
/* Sections with tables of their own: admin: and the maps of health:. */
#include "config/load.h"

#include "base/assert.h"

#include <string.h>

/* The map of "health.backlog" in the file; NULL: it has none. */
static const struct pr_yaml *find_map(struct pr_loading *loading, const struct pr_yaml *tree,
				      const char *path)
{
	const char *dot = strchr(path, '.');
	const char *name = dot ? pr_load_printf(loading, "%.*s", (int)(dot - path), path) : path;
	const struct pr_yaml *node = tree && name ? pr_yaml_find(tree, name) : NULL;
	const struct pr_yaml *map = name ? pr_load_want(loading, name, node, PR_YAML_MAP) : NULL;

	if (!dot || !map)
		return map;
	return pr_load_want(loading, path, pr_yaml_find(map, dot + 1), PR_YAML_MAP);
}

static void load_one(struct pr_loading *loading, const struct pr_config_section *section,
		     const struct pr_yaml *tree, struct pr_config_value ***last)
{
	const struct pr_yaml *map = find_map(loading, tree, section->name);
	const char *names[PR_NAMES_MAX + 1];
	size_t count = 0;

	pr_params_defaults(section->params, section->target);
	for (const struct pr_param *param = section->params; param->name; param++) {
		bool option = strcmp(param->name, section->name) == 0;
		const struct pr_wanted wanted = {
			.section = section->name,
			.name = option ? "listen" : param->name,
			.param = param,
			.map = map,
			.given = option ? section->given : NULL,
			.target = section->target,
		};

		pr_assert(count < PR_NAMES_MAX);
		names[count++] = wanted.name;
		pr_load_value(loading, &wanted, last);
	}
	names[count] = NULL;
	pr_load_check_names(loading, section->name, map, names, NULL);
}

/* A map that holds maps, as health: does: each is a section, and nothing else is in it. */
static void check_parents(struct pr_loading *loading, const struct pr_config_section *sections,
			  const struct pr_yaml *tree)
{
	const char *names[PR_NAMES_MAX + 1];
	const char *parent = NULL;
	size_t count = 0;

	for (; sections->name; sections++) {
		const char *dot = strchr(sections->name, '.');

		if (!dot || count == PR_NAMES_MAX)
			continue;
		parent = pr_load_printf(loading, "%.*s", (int)(dot - sections->name),
					sections->name);
		names[count++] = dot + 1;
	}
	names[count] = NULL;
	if (!parent)
		return;
	pr_load_check_names(loading, parent, find_map(loading, tree, parent), names, NULL);
	pr_load_check_variables(loading, parent);
}

void pr_load_sections(struct pr_loading *loading, const struct pr_config_section *sections,
		      const struct pr_yaml *tree, struct pr_config_value **ret)
{
	for (const struct pr_config_section *section = sections; section->name; section++)
		load_one(loading, section, tree, &ret);
	for (const struct pr_config_section *section = sections; section->name; section++) {
		if (!strchr(section->name, '.'))
			pr_load_check_variables(loading, section->name);
	}
	check_parents(loading, sections, tree);
}

const char *pr_config_where(const struct pr_config *config, const char *path)
{
	const struct pr_config_value *value = config->section_values;

	while (value && strcmp(value->path, path) != 0)
		value = value->next;
	return value ? value->where : NULL;
}
