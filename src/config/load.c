/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the text of one value comes from.
 *
 * 1. The command line counts before the environment, that before the file, that
 *    before the default; a lower one is not even looked at.
 * 2. The value of ${NAME} and ${credential:NAME}, and of a name that implies a secret, is only in text,
 *    never in shown and never in a fault.
 */
#include "config/load.h"

#include "config/credential.h"

#include "base/text.h"
#include "base/url.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char stars[] = "***";
static const char credential_start[] = "${credential:";

char *pr_load_printf(struct pr_loading *loading, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = pr_arena_vprintf(loading->arena, format, args);
	va_end(args);
	if (!text)
		loading->nomem = true;
	return text;
}

void *pr_load_alloc(struct pr_loading *loading, size_t size)
{
	void *memory = pr_arena_alloc(loading->arena, size);

	if (memory)
		memset(memory, 0, size);
	else
		loading->nomem = true;
	return memory;
}

const struct pr_yaml *pr_load_want(struct pr_loading *loading, const char *path,
				   const struct pr_yaml *node, enum pr_yaml_kind kind)
{
	static const char *const kinds[] = {
		[PR_YAML_SCALAR] = "one value",
		[PR_YAML_LIST] = "a list (- …)",
		[PR_YAML_MAP] = "a map (name: value)",
	};

	if (!node || node->kind == kind)
		return node;
	if (node->empty)
		return NULL;
	pr_fault(loading->faults, "%s:%d: %s: has to be %s, not %s", loading->file, node->line,
		 path, kinds[kind], kinds[node->kind]);
	return NULL;
}

void pr_load_check_names(struct pr_loading *loading, const char *section, const struct pr_yaml *map,
			 const char *const *names, const char *advice)
{
	for (const struct pr_yaml *node = map ? map->first : NULL; node; node = node->next) {
		const char *path = pr_load_printf(loading, "%s%s%s", section ? section : "",
						  section ? "." : "", node->name);
		const char *nearest;
		size_t i = 0;

		while (names[i] && !pr_param_matches(names[i], node->name))
			i++;
		if (names[i] || !path)
			continue;
		nearest = pr_text_nearest(node->name, names);
		if (nearest)
			pr_fault(loading->faults, "%s:%d: %s: unknown; did you mean %s?",
				 loading->file, node->line, path, nearest);
		else
			pr_fault(loading->faults, "%s:%d: %s: unknown; %s", loading->file,
				 node->line, path, advice ? advice : "see postroom.yaml(5)");
	}
}

void pr_load_add_names(struct pr_loading *loading, const struct pr_param *params,
		       const char **names)
{
	size_t count = 0;

	while (names[count])
		count++;
	for (; params && params->name && count < PR_NAMES_MAX; params++) {
		char *name = pr_load_printf(loading, "%s", params->name);

		for (char *c = name; c && *c; c++)
			*c = *c == '-' ? '_' : *c;
		names[count] = name;
		count += name != NULL;
	}
	names[count] = NULL;
}

/* The length of a variable's name, or 0. */
static size_t name_length(const char *text)
{
	size_t len = 0;

	if (*text >= '0' && *text <= '9')
		return 0;
	while (isalnum((unsigned char)text[len]) || text[len] == '_')
		len++;
	return len;
}

struct pr_variable {
	struct pr_variable *next;
	const char *name;
};

static void keep_variable(struct pr_loading *loading, const char *name)
{
	struct pr_variable *variable = pr_load_alloc(loading, sizeof(*variable));

	if (!variable)
		return;
	*variable = (struct pr_variable){ .next = loading->variables, .name = name };
	loading->variables = variable;
}

/* ${credential:NAME} at text; returns what follows it, or NULL with the reason in *ret_why. */
static const char *expand_credential(struct pr_loading *loading, const char *text,
				     struct pr_buf *out, const char **ret_why)
{
	struct pr_err err = { 0 };
	const char *at = text + strlen(credential_start);
	size_t len = pr_credential_name_length(at);
	const char *name;

	if (len == 0 || at[len] != '}') {
		*ret_why = "${credential: wants the name of a credential and a }; the name has "
			   "letters, digits, _, - and .";
		return NULL;
	}
	name = pr_load_printf(loading, "%.*s", (int)len, at);
	if (!name)
		return NULL;
	if (pr_credential_read(name, out, &err) < 0) {
		*ret_why = pr_load_printf(loading, "%s", err.text);
		return NULL;
	}
	return at + len + 1;
}

/* ${NAME} at text; returns what follows it, or NULL with the reason in *ret_why. */
static const char *expand_variable(struct pr_loading *loading, const char *text, struct pr_buf *out,
				   const char **ret_why)
{
	size_t len = name_length(text + 2);
	const char *name, *value;

	if (len == 0 || text[2 + len] != '}') {
		*ret_why = "${ needs the name of an environment variable and a }; for the two "
			   "characters themselves write $${";
		return NULL;
	}
	name = pr_load_printf(loading, "%.*s", (int)len, text + 2);
	value = name ? getenv(name) : NULL;
	if (name)
		keep_variable(loading, name);
	if (!value) {
		*ret_why = pr_load_printf(loading, "the environment variable %s is not set",
					  name ? name : "");
		return NULL;
	}
	pr_buf_puts(out, value);
	return text + 2 + len + 1;
}

static bool expand(struct pr_loading *loading, const struct pr_yaml *node,
		   struct pr_config_value *value)
{
	PR_CLEANUP_BUF struct pr_buf out = { 0 };
	PR_CLEANUP_BUF struct pr_buf shown = { 0 };
	const char *why = NULL;

	for (const char *at = node->text; at && *at;) {
		if (strncmp(at, "$${", 3) == 0) {
			pr_buf_puts(&out, "${");
			pr_buf_puts(&shown, "${");
			at += 3;
		} else if (strncmp(at, credential_start, strlen(credential_start)) == 0) {
			at = expand_credential(loading, at, &out, &why);
			pr_buf_puts(&shown, stars);
		} else if (strncmp(at, "${", 2) == 0) {
			at = expand_variable(loading, at, &out, &why);
			pr_buf_puts(&shown, stars);
		} else {
			pr_buf_putc(&out, *at);
			pr_buf_putc(&shown, *at++);
		}
	}
	if (why) {
		pr_fault(loading->faults, "%s: %s: %s", value->where, value->path, why);
		return false;
	}
	value->text = pr_load_printf(loading, "%s", pr_buf_text(&out));
	value->shown = pr_load_printf(loading, "%s", pr_buf_text(&shown));
	loading->nomem = loading->nomem || out.failed || shown.failed;
	return !loading->nomem;
}

/* The variable of a path, or the path's own one. */
static char *variable_of(struct pr_loading *loading, const char *path)
{
	char *name;

	if (strcmp(path, "database") == 0)
		return pr_load_printf(loading, "POSTROOM_DB");
	name = pr_load_printf(loading, "POSTROOM_%s", path);
	for (char *c = name; c && *c; c++)
		*c = isalnum((unsigned char)*c) ? (char)toupper((unsigned char)*c) : '_';
	return name;
}

/* Reports a variable that no section uses. */
static void check_variable(struct pr_loading *loading, const char *name)
{
	const char *names[PR_NAMES_MAX + 1];
	size_t count = 0;
	const char *nearest;

	for (const struct pr_variable *one = loading->variables; one; one = one->next) {
		if (strcmp(one->name, name) == 0)
			return;
		if (count < PR_NAMES_MAX)
			names[count++] = one->name;
	}
	names[count] = NULL;
	nearest = pr_text_nearest(name, names);
	if (nearest)
		pr_fault(loading->faults, "$%s: unknown; did you mean $%s?", name, nearest);
	else
		pr_fault(loading->faults, "$%s: unknown; unset it, or see postroom.yaml(5)", name);
}

void pr_load_check_variables(struct pr_loading *loading, const char *section)
{
	const char *prefix = variable_of(loading, section);
	size_t len = prefix ? strlen(prefix) : 0;

	for (char **at = environ; prefix && *at; at++) {
		const char *equals = strchr(*at, '=');
		const char *name;

		/* An empty variable counts as none. */
		if (strncmp(*at, prefix, len) != 0 || (*at)[len] != '_' || !equals || !equals[1])
			continue;
		name = pr_load_printf(loading, "%.*s", (int)(equals - *at), *at);
		if (name)
			check_variable(loading, name);
	}
}

static void hide_secrets(struct pr_loading *loading, struct pr_config_value *value)
{
	size_t size = strlen(value->shown) * 4 + 4; /* an empty secret gets three stars */
	char *shown;

	if (pr_url_is_secret(value->name)) {
		value->shown = stars;
		return;
	}
	shown = pr_load_alloc(loading, size);
	if (shown)
		pr_url_redact(value->shown, shown, size);
	value->shown = shown ? shown : stars;
}

static void append(struct pr_config_value *value, struct pr_config_value ***last)
{
	**last = value;
	*last = &value->next;
}

/* Sets the field of a value that has its text; an error is reported without its secrets. */
static void set(struct pr_loading *loading, const struct pr_wanted *wanted,
		struct pr_config_value *value)
{
	const struct pr_param *param = wanted->param;
	struct pr_err err;

	hide_secrets(loading, value);
	if (pr_param_set(param, wanted->target, value->text, &err) >= 0)
		return;
	if (strcmp(value->text, value->shown) != 0 &&
	    pr_param_set(param, wanted->target, value->shown, &err) >= 0)
		pr_err_set(&err, POSTROOM_INVALID, "%s takes another kind of value", param->name);
	/* The error begins with the param's name, of which the path is the longer form. */
	pr_fault(loading->faults, "%s: %s%s", value->where, value->path,
		 err.text + strlen(param->name));
}

static struct pr_config_value *new_value(struct pr_loading *loading, const struct pr_wanted *wanted)
{
	struct pr_config_value *value = pr_load_alloc(loading, sizeof(*value));

	if (!value)
		return NULL;
	value->param = wanted->param;
	value->name = wanted->name;
	value->path = pr_load_printf(loading, "%s%s%s", wanted->section ? wanted->section : "",
				     wanted->section ? "." : "", wanted->name);
	return value->path ? value : NULL;
}

static void load_node(struct pr_loading *loading, const struct pr_wanted *wanted,
		      const struct pr_yaml *node, struct pr_config_value ***last)
{
	struct pr_config_value *value = new_value(loading, wanted);

	if (!value)
		return;
	value->where = pr_load_printf(loading, "%s:%d", loading->file, node->line);
	if (!value->where)
		return;
	if (node->empty) {
		pr_fault(loading->faults, "%s: %s: has no value; give it one or leave it out",
			 value->where, value->path);
		return;
	}
	if (!pr_load_want(loading, value->path, node, PR_YAML_SCALAR) ||
	    !expand(loading, node, value))
		return;
	set(loading, wanted, value);
	append(value, last);
}

/* From the command line or the environment; false if neither has it. */
static bool load_text(struct pr_loading *loading, const struct pr_wanted *wanted,
		      struct pr_config_value ***last)
{
	struct pr_config_value *value = new_value(loading, wanted);
	const char *variable = value ? variable_of(loading, value->path) : NULL;
	const char *text = variable ? getenv(variable) : NULL;

	if (!variable)
		return true;
	keep_variable(loading, variable);
	if (wanted->given) {
		text = wanted->given;
		value->where = pr_load_printf(loading, "--%s", wanted->param->name);
	} else if (text && *text) {
		value->where = pr_load_printf(loading, "$%s", variable);
	} else {
		return false;
	}
	value->text = value->shown = pr_load_printf(loading, "%s", text);
	if (value->text && value->where) {
		set(loading, wanted, value);
		append(value, last);
	}
	return true;
}

void pr_load_value(struct pr_loading *loading, const struct pr_wanted *wanted,
		   struct pr_config_value ***last)
{
	const struct pr_yaml *node = wanted->map ? pr_yaml_find(wanted->map, wanted->name) : NULL;
	struct pr_config_value *value;

	if (load_text(loading, wanted, last))
		return;
	if (node && node->kind == PR_YAML_LIST && wanted->param->type == PR_PARAM_LIST) {
		for (node = node->first; node; node = node->next)
			load_node(loading, wanted, node, last);
		return;
	}
	if (node) {
		load_node(loading, wanted, node, last);
		return;
	}
	value = new_value(loading, wanted);
	if (!value)
		return;
	value->text = value->shown = wanted->param->fallback;
	value->where = "default";
	append(value, last);
}
