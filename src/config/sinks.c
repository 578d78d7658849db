/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Every setting of a sink has been parsed by the sink's own table, into a
 *    scratch instance that is never opened.
 * 2. Every route names a sink that exists.
 */
#include "config/load.h"

#include "base/text.h"
#include "base/time.h"
#include "relay/relay.h"
#include "sink/sink.h"

#include <stdlib.h>
#include <string.h>

/* Settings that every sink has, besides its own table. */
struct common {
	const char *url;
	int64_t concurrency;
	const char *rate;
};

static const struct pr_param common_params[] = {
	{ .name = "url", .type = PR_PARAM_STRING, .offset = offsetof(struct common, url) },
	{ .name = "concurrency",
	  .type = PR_PARAM_INT,
	  .offset = offsetof(struct common, concurrency),
	  .min = 1,
	  .max = PR_CONCURRENCY_MAX },
	{ .name = "rate", .type = PR_PARAM_STRING, .offset = offsetof(struct common, rate) },
	{ 0 },
};

struct route_texts {
	const char *ns;
	const char *topic;
	const char *sink;
};

static const struct pr_param route_params[] = {
	{ .name = "namespace",
	  .type = PR_PARAM_STRING,
	  .offset = offsetof(struct route_texts, ns) },
	{ .name = "topic", .type = PR_PARAM_STRING, .offset = offsetof(struct route_texts, topic) },
	{ .name = "sink", .type = PR_PARAM_STRING, .offset = offsetof(struct route_texts, sink) },
	{ 0 },
};

/* A name with a '*' stands for those that the file has. */
static void load_open(struct pr_loading *loading, struct pr_wanted wanted,
		      struct pr_config_value ***last)
{
	const char *known = wanted.name;

	for (const struct pr_yaml *node = wanted.map ? wanted.map->first : NULL; node;
	     node = node->next) {
		wanted.name = node->name;
		if (pr_param_matches(known, node->name))
			pr_load_value(loading, &wanted, last);
	}
}

/* All of a table's values but those that another table has taken. section has no name yet. */
static void load_table(struct pr_loading *loading, const struct pr_wanted *section,
		       const struct pr_param *params, const struct pr_param *taken,
		       struct pr_config_value ***last)
{
	const char *names[PR_NAMES_MAX + 1] = { NULL };

	pr_load_add_names(loading, params, names);
	for (size_t i = 0; names[i]; i++) {
		struct pr_wanted wanted = *section;

		wanted.name = names[i];
		wanted.param = &params[i];
		if (taken && pr_param_find(taken, names[i]))
			continue;
		if (strchr(names[i], '*'))
			load_open(loading, wanted, last);
		else
			pr_load_value(loading, &wanted, last);
	}
}

static const struct pr_config_value *find_value(const struct pr_config_value *value,
						const char *name)
{
	while (value && strcmp(value->name, name) != 0)
		value = value->next;
	return value;
}

static void load_rate(struct pr_loading *loading, const struct pr_config_value *value, double *ret)
{
	struct pr_err err;

	/* Its own words would show what was given, which may be hidden. */
	if (value && value->text && pr_rate_parse(value->text, ret, &err) < 0)
		pr_fault(loading->faults,
			 "%s: %s takes a rate like 500/s, 1000/m or 10/h, not \"%.100s\"",
			 value->where, value->path, value->shown);
}

/* The settings behind the URL's '?', into the scratch instance. */
static int set_from_url(const struct pr_sink_ops *ops, const char *text, void *scratch,
			struct pr_err *err)
{
	struct pr_url url;
	int status = pr_url_parse(text, &url, err);

	for (size_t i = 0; status >= 0 && i < url.setting_count; i++)
		status = pr_params_set(ops->params, scratch, url.settings[i].name,
				       url.settings[i].value, err);
	pr_url_release(&url);
	return status;
}

/* A wrong value is reported by the part that may be shown. */
static void check_url(struct pr_loading *loading, const struct pr_sink_ops *ops,
		      const struct pr_config_value *value, void *scratch)
{
	struct pr_err err = { 0 };
	int status = ops->verbatim ? POSTROOM_OK : set_from_url(ops, value->text, scratch, &err);

	if (status < 0 && strcmp(value->text, value->shown) != 0 &&
	    set_from_url(ops, value->shown, scratch, &err) >= 0)
		pr_err_set(&err, status, "a variable in it has a value that does not fit there");
	if (status == POSTROOM_NOMEM)
		loading->nomem = true;
	else if (status < 0 && strncmp(value->where, "--", 2) == 0)
		pr_fault(loading->faults, "%s: %s; run `postroom sinks %s`", value->where, err.text,
			 ops->schemes[0]);
	else if (status < 0)
		pr_fault(loading->faults, "%s: %s: %s; run `postroom sinks %s`", value->where,
			 value->path, err.text, ops->schemes[0]);
}

/* Settings in the URL are not defaults, and must not be printed as such. */
static void drop_defaults(const struct pr_config_value *from, struct pr_config_value *value)
{
	struct pr_url url;

	if (pr_url_parse(from->text, &url, NULL) < 0)
		return;
	for (; value; value = value->next) {
		for (size_t i = 0; i < url.setting_count; i++) {
			if (strcmp(value->where, "default") != 0 ||
			    !pr_param_same_name(url.settings[i].name, value->name))
				continue;
			value->text = value->shown = NULL;
			value->where = from->where;
		}
	}
	pr_url_release(&url);
}

/* Settings from the file or the environment, which are passed when the sink is opened. */
static void collect_settings(struct pr_loading *loading, const struct pr_config_value *first,
			     struct pr_relay_sink *sink)
{
	struct pr_url_setting *settings;
	size_t count = 0;

	for (const struct pr_config_value *value = first; value; value = value->next)
		count++;
	settings = pr_load_alloc(loading, (count + 1) * sizeof(*settings));
	if (!settings)
		return;
	count = 0;
	for (const struct pr_config_value *value = first; value; value = value->next) {
		if (!value->text || strcmp(value->where, "default") == 0)
			continue;
		settings[count].name = pr_load_printf(loading, "%s", value->name);
		settings[count++].value = pr_load_printf(loading, "%s", value->text);
	}
	sink->settings = settings;
	sink->setting_count = count;
}

/* The sink's own settings; *last is where their values go. */
static void load_settings(struct pr_loading *loading, const char *path, const struct pr_yaml *map,
			  const struct pr_config_value *url, struct pr_config_value **last,
			  struct pr_relay_sink *sink)
{
	const char *names[PR_NAMES_MAX + 1] = { NULL };
	const struct pr_sink_ops *ops;
	struct pr_config_value **first = last;
	struct pr_err err;
	void *scratch;

	if (pr_sink_find(url->text, &ops, &err) < 0) {
		if (strcmp(url->text, url->shown) != 0)
			pr_err_set(&err, POSTROOM_INVALID,
				   "it does not begin with a sink's name, which postroom sinks "
				   "lists; check the variable in it");
		pr_fault(loading->faults, "%s: %s: %s", url->where, url->path, err.text);
		return;
	}
	scratch = calloc(1, ops->size);
	if (!scratch) {
		loading->nomem = true;
		return;
	}
	pr_load_add_names(loading, common_params, names);
	pr_load_add_names(loading, ops->params, names);
	pr_load_check_names(loading, path, map, names,
			    pr_load_printf(loading, "run `postroom sinks %s`", ops->schemes[0]));
	pr_params_defaults(ops->params, scratch);
	check_url(loading, ops, url, scratch);
	load_table(loading, &(struct pr_wanted){ .section = path, .map = map, .target = scratch },
		   ops->params, common_params, &last);
	collect_settings(loading, *first, sink);
	if (!ops->verbatim)
		drop_defaults(url, *first);
	free(scratch);
}

static bool is_plain_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-";

	return name[strspn(name, letters)] == '\0';
}

static void load_sink(struct pr_loading *loading, const struct pr_yaml *node,
		      struct pr_config_part *part, struct pr_relay_sink *sink)
{
	const char *path = pr_load_printf(loading, "sinks.%s", node->name);
	const struct pr_yaml *map;
	struct common common = { 0 };
	struct pr_config_value **last = &part->values;
	const struct pr_config_value *url;

	part->name = sink->name = node->name;
	if (!path)
		return;
	if (!is_plain_name(node->name))
		pr_fault(loading->faults,
			 "%s:%d: %s: a sink's name consists of letters, digits, _ and -",
			 loading->file, node->line, path);
	map = pr_load_want(loading, path, node, PR_YAML_MAP);
	if (!map && !node->empty)
		return;
	load_table(loading, &(struct pr_wanted){ .section = path, .map = map, .target = &common },
		   common_params, NULL, &last);
	url = find_value(part->values, "url");
	if (url && url->text) {
		sink->url = url->text;
		sink->concurrency = common.concurrency;
		load_rate(loading, find_value(part->values, "rate"), &sink->rate);
		load_settings(loading, path, map, url, last, sink);
	} else if (!map || !pr_yaml_find(map, "url")) {
		pr_fault(loading->faults,
			 "%s:%d: %s: has no url; give it one, as in url: \"file:out.ndjson\"",
			 loading->file, node->line, path);
	}
}

static size_t count_members(const struct pr_yaml *node)
{
	size_t count = 0;

	for (node = node ? node->first : NULL; node; node = node->next)
		count++;
	return count;
}

static void report_unknown_sink(struct pr_loading *loading, const struct pr_config *config,
				const struct pr_config_value *value)
{
	const char **names = pr_load_alloc(loading, (config->sink_count + 1) * sizeof(*names));
	const char *nearest;

	if (!names)
		return;
	for (size_t i = 0; i < config->sink_count; i++)
		names[i] = config->sinks[i].name;
	nearest = pr_text_nearest(value->text, names);
	pr_fault(loading->faults, "%s: %s: there is no sink \"%.100s\" below sinks:%s%s%s",
		 value->where, value->path, value->shown, nearest ? "; did you mean " : "",
		 nearest ? nearest : "", nearest ? "?" : "");
}

static void load_route(struct pr_loading *loading, const struct pr_yaml *node,
		       struct pr_config *config, size_t number)
{
	const char *path = pr_load_printf(loading, "routes.%zu", number + 1);
	const char *names[PR_NAMES_MAX + 1] = { NULL };
	struct pr_relay_route *route = &config->routes[number];
	struct pr_config_part *part = &config->route_parts[number];
	struct pr_config_value **last = &part->values;
	struct route_texts texts = { 0 };
	const struct pr_config_value *sink;
	const struct pr_yaml *map;

	if (!path)
		return;
	map = pr_load_want(loading, path, node, PR_YAML_MAP);
	if (!map && !node->empty)
		return;
	pr_load_add_names(loading, route_params, names);
	pr_load_check_names(loading, path, map, names, NULL);
	load_table(loading, &(struct pr_wanted){ .section = path, .map = map, .target = &texts },
		   route_params, NULL, &last);
	route->ns = texts.ns;
	route->topic = texts.topic;
	sink = find_value(part->values, "sink");
	if (!sink || !sink->text) {
		if (!map || !pr_yaml_find(map, "sink"))
			pr_fault(loading->faults,
				 "%s:%d: %s: has no sink; name one of sinks:", loading->file,
				 node->line, path);
		return;
	}
	while (route->sink < config->sink_count &&
	       !pr_param_same_name(config->sinks[route->sink].name, sink->text))
		route->sink++;
	if (route->sink == config->sink_count)
		report_unknown_sink(loading, config, sink);
}

static bool make_room(struct pr_loading *loading, struct pr_config *config)
{
	size_t sinks = config->sink_count, routes = config->route_count;

	config->sinks = pr_load_alloc(loading, (sinks + 1) * sizeof(*config->sinks));
	config->sink_parts = pr_load_alloc(loading, (sinks + 1) * sizeof(*config->sink_parts));
	config->routes = pr_load_alloc(loading, (routes + 1) * sizeof(*config->routes));
	config->route_parts = pr_load_alloc(loading, (routes + 1) * sizeof(*config->route_parts));
	return !loading->nomem;
}

void pr_load_sinks(struct pr_loading *loading, const struct pr_yaml *tree, struct pr_config *config)
{
	const struct pr_yaml *sinks = pr_load_want(loading, "sinks", pr_yaml_find(tree, "sinks"),
						   PR_YAML_MAP);
	const struct pr_yaml *routes = pr_load_want(loading, "routes", pr_yaml_find(tree, "routes"),
						    PR_YAML_LIST);
	size_t i = 0;

	config->sink_count = count_members(sinks);
	config->route_count = count_members(routes);
	if (!make_room(loading, config))
		return;
	for (const struct pr_yaml *node = sinks ? sinks->first : NULL; node; node = node->next, i++)
		load_sink(loading, node, &config->sink_parts[i], &config->sinks[i]);
	i = 0;
	for (const struct pr_yaml *node = routes ? routes->first : NULL; node; node = node->next)
		load_route(loading, node, config, i++);
}

static struct pr_config_value *given_value(struct pr_loading *loading, const char *path,
					   const char *text, const char *shown)
{
	struct pr_config_value *value = pr_load_alloc(loading, sizeof(*value));

	if (!value)
		return NULL;
	*value = (struct pr_config_value){
		.path = path,
		.name = strrchr(path, '.') + 1,
		.text = text,
		.shown = shown,
		.where = "--to",
	};
	return value;
}

void pr_load_to(struct pr_loading *loading, const char *url, struct pr_config *config)
{
	size_t size = strlen(url) * 4 + 4;
	char *text = pr_load_printf(loading, "%s", url), *shown = pr_load_alloc(loading, size);
	const struct pr_sink_ops *ops;
	struct pr_err err;
	void *scratch;

	config->sink_count = config->route_count = 1;
	if (!text || !shown || !make_room(loading, config))
		return;
	pr_url_redact(text, shown, size);
	config->sink_parts[0].name = config->sinks[0].name = "to";
	config->sinks[0].url = text;
	config->sink_parts[0].values = given_value(loading, "sinks.to.url", text, shown);
	config->route_parts[0].values = given_value(loading, "routes.1.sink", "to", "to");
	if (!config->sink_parts[0].values)
		return;
	if (pr_sink_find(text, &ops, &err) < 0) {
		pr_fault(loading->faults, "--to: %s", err.text);
		return;
	}
	scratch = calloc(1, ops->size);
	if (!scratch) {
		loading->nomem = true;
		return;
	}
	pr_params_defaults(ops->params, scratch);
	check_url(loading, ops, config->sink_parts[0].values, scratch);
	free(scratch);
}
