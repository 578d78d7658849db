/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Of a value only what may be shown is printed.
 * 2. The YAML says the same when it is loaded again, secrets aside.
 */
#include "config/config.h"

#include "base/json.h"
#include "base/text.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

static const char plain_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_./-";

static bool is_plain(const char *text)
{
	return *text && *text != '-' && text[strspn(text, plain_letters)] == '\0' &&
	       strcmp(text, "null") != 0;
}

static unsigned decode(const char *text, size_t len)
{
	static const unsigned char masks[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	unsigned code = (unsigned char)*text & masks[len];

	for (size_t i = 1; i < len; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3f);
	return code;
}

/* What YAML does not take as it is, or takes for the end of a line, even between quotes. */
static bool must_escape(unsigned code)
{
	return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 ||
	       code == 0xfeff || code == 0xfffe || code == 0xffff;
}

static void put_quoted(struct pr_buf *out, const char *text)
{
	pr_buf_putc(out, '"');
	while (*text) {
		size_t len = pr_utf8_length(text, strlen(text));
		unsigned code = len ? decode(text, len) : 0xfffd;

		if (must_escape(code) || len == 0)
			pr_buf_printf(out, "\\u%04X", code);
		else if (*text == '"' || *text == '\\')
			pr_buf_printf(out, "\\%c", *text);
		else if (strncmp(text, "${", 2) == 0)
			pr_buf_puts(out, "$$");
		else
			pr_buf_append(out, text, len);
		text += len ? len : 1;
	}
	pr_buf_putc(out, '"');
}

static void put_scalar(struct pr_buf *out, const char *text)
{
	if (is_plain(text))
		pr_buf_puts(out, text);
	else
		put_quoted(out, text);
}

/*
 * The effective text: the given one, or the computed default. NULL: nothing. target is NULL where
 * there is none.
 */
static const char *effective(const struct pr_config_value *value, const void *target,
			     char room[PR_DURATION_SIZE])
{
	int64_t ms;

	if (value->shown || !target || value->param->type != PR_PARAM_DURATION)
		return value->shown;
	memcpy(&ms, (const char *)target + value->param->offset, sizeof(ms));
	pr_duration_format(ms, room);
	return room;
}

static bool is_list(const struct pr_config_value *value)
{
	return value->param && value->param->type == PR_PARAM_LIST && value->text &&
	       pr_param_same_name(value->param->name, value->name);
}

static bool is_continued(const struct pr_config_value *value)
{
	return is_list(value) && value->next && value->next->param == value->param;
}

/* One line; returns the last value that is in it. */
static const struct pr_config_value *put_line(struct pr_buf *out, const char *before,
					      const struct pr_config_value *value,
					      const void *target)
{
	char room[PR_DURATION_SIZE];
	const char *text = effective(value, target, room);

	if (!text)
		return value;
	pr_buf_printf(out, "%s%s: %s", before, value->name, is_list(value) ? "[" : "");
	put_scalar(out, text);
	while (is_continued(value)) {
		value = value->next;
		pr_buf_puts(out, ", ");
		put_scalar(out, value->shown);
	}
	pr_buf_puts(out, is_list(value) ? "]  # " : "  # ");
	for (const char *c = value->where; *c; c++)
		pr_buf_putc(out, (unsigned char)*c < 0x20 ? '?' : *c);
	pr_buf_putc(out, '\n');
	return value;
}

static bool is_in(const struct pr_config_value *value, const char *section)
{
	size_t len = strlen(section);

	return strncmp(value->path, section, len) == 0 && value->path[len] == '.';
}

static void put_section(const struct pr_config *config, const char *section, const void *target,
			struct pr_buf *out)
{
	pr_buf_printf(out, "%s:\n", section);
	for (const struct pr_config_value *value = config->values; value; value = value->next) {
		if (is_in(value, section))
			value = put_line(out, "  ", value, target);
	}
}

/* The length of a value's path without its own name: "health.backlog". */
static size_t parent_length(const struct pr_config_value *value)
{
	return (size_t)(strrchr(value->path, '.') - value->path);
}

static bool is_first(const struct pr_config_value *list, const struct pr_config_value *value,
		     size_t len)
{
	while (list != value &&
	       (strncmp(list->path, value->path, len) != 0 || list->path[len] != '.'))
		list = list->next;
	return list == value;
}

/* Heads where a section or a map in it begins; their values are neighbors. */
static void put_sections(const struct pr_config *config, struct pr_buf *out)
{
	for (const struct pr_config_value *value = config->section_values; value;
	     value = value->next) {
		size_t len = strcspn(value->path, "."), parent = parent_length(value);

		if (is_first(config->section_values, value, len))
			pr_buf_printf(out, "%.*s:\n", (int)len, value->path);
		if (parent > len && is_first(config->section_values, value, parent))
			pr_buf_printf(out, "  %.*s:\n", (int)(parent - len - 1),
				      value->path + len + 1);
		put_line(out, parent > len ? "    " : "  ", value, NULL);
	}
}

void pr_config_put_yaml(const struct pr_config *config, const void *target, struct pr_buf *out)
{
	const struct pr_config_value *value;

	put_line(out, "", config->database, NULL);
	put_section(config, "relay", target, out);
	put_section(config, "retention", target, out);
	put_sections(config, out);
	pr_buf_puts(out, "sinks:\n");
	for (size_t i = 0; i < config->sink_count; i++) {
		pr_buf_printf(out, "  %s:\n", config->sink_parts[i].name);
		for (value = config->sink_parts[i].values; value; value = value->next)
			value = put_line(out, "    ", value, NULL);
	}
	pr_buf_puts(out, "routes:\n");
	for (size_t i = 0; i < config->route_count; i++) {
		const char *before = "  - ";

		for (value = config->route_parts[i].values; value; value = value->next) {
			put_line(out, before, value, NULL);
			before = value->text ? "    " : before;
		}
	}
}

static void put_comma(struct pr_buf *out)
{
	char last = out->len > 0 ? out->data[out->len - 1] : '{';

	if (last != '{' && last != '[')
		pr_buf_putc(out, ',');
}

static const struct pr_config_value *put_member(struct pr_buf *out,
						const struct pr_config_value *value,
						const void *target)
{
	char room[PR_DURATION_SIZE];
	const char *text = effective(value, target, room);
	bool number = value->param && value->param->type == PR_PARAM_INT && text &&
		      strcmp(value->text, text) == 0;

	put_comma(out);
	pr_buf_printf(out, "\"%s\":%s", value->name, is_list(value) ? "[" : "");
	if (number)
		pr_buf_printf(out, "%lld", strtoll(text, NULL, 10));
	else
		pr_json_put_string(out, text);
	while (is_continued(value)) {
		value = value->next;
		pr_buf_putc(out, ',');
		pr_json_put_string(out, value->shown);
	}
	if (is_list(value))
		pr_buf_putc(out, ']');
	return value;
}

static void put_members(struct pr_buf *out, const struct pr_config_value *value,
			const char *section, const void *target)
{
	pr_buf_putc(out, '{');
	for (; value; value = value->next) {
		if (!section || is_in(value, section))
			value = put_member(out, value, target);
	}
	pr_buf_putc(out, '}');
}

static void put_sources(struct pr_buf *out, const struct pr_config_value *value)
{
	for (; value; value = value->next) {
		if (is_continued(value))
			continue;
		put_comma(out);
		pr_json_put_string(out, value->path);
		pr_buf_putc(out, ':');
		pr_json_put_string(out, value->where);
	}
}

static void put_section_members(struct pr_buf *out, const struct pr_config *config)
{
	const struct pr_config_value *list = config->section_values;

	for (const struct pr_config_value *value = list; value; value = value->next) {
		size_t len = strcspn(value->path, "."), parent = parent_length(value);
		const struct pr_config_value *next = value->next;

		if (is_first(list, value, len))
			pr_buf_printf(out, ",\"%.*s\":{", (int)len, value->path);
		if (parent > len && is_first(list, value, parent)) {
			put_comma(out);
			pr_buf_printf(out, "\"%.*s\":{", (int)(parent - len - 1),
				      value->path + len + 1);
		}
		put_member(out, value, NULL);
		if (parent > len && (!next || strncmp(next->path, value->path, parent + 1) != 0))
			pr_buf_putc(out, '}');
		if (!next || strncmp(next->path, value->path, len + 1) != 0)
			pr_buf_putc(out, '}');
	}
}

void pr_config_put_json(const struct pr_config *config, const void *target, struct pr_buf *out)
{
	pr_buf_putc(out, '{');
	put_member(out, config->database, NULL);
	pr_buf_puts(out, ",\"relay\":");
	put_members(out, config->values, "relay", target);
	pr_buf_puts(out, ",\"retention\":");
	put_members(out, config->values, "retention", target);
	put_section_members(out, config);
	pr_buf_puts(out, ",\"sinks\":{");
	for (size_t i = 0; i < config->sink_count; i++) {
		put_comma(out);
		pr_buf_printf(out, "\"%s\":", config->sink_parts[i].name);
		put_members(out, config->sink_parts[i].values, NULL, NULL);
	}
	pr_buf_puts(out, "},\"routes\":[");
	for (size_t i = 0; i < config->route_count; i++) {
		put_comma(out);
		put_members(out, config->route_parts[i].values, NULL, NULL);
	}
	pr_buf_puts(out, "],\"sources\":{");
	put_sources(out, config->database);
	put_sources(out, config->values);
	put_sources(out, config->section_values);
	for (size_t i = 0; i < config->sink_count; i++)
		put_sources(out, config->sink_parts[i].values);
	for (size_t i = 0; i < config->route_count; i++)
		put_sources(out, config->route_parts[i].values);
	pr_buf_puts(out, "}}\n");
}
