/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A tree is never deeper than PR_YAML_DEPTH_MAX, no map or list longer than
 *    PR_YAML_MEMBERS_MAX, and all of it not larger than its text allows: aliases,
 *    which could make it so, are refused.
 * 2. No map has a name twice ('-' and '_' are the same), so a search for one
 *    has found the only one.
 * 3. A fault is one line without control characters, whatever the file says.
 */
#include "config/yaml.h"

#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#define NAME_MAX_BYTES 200

struct reader {
	yaml_parser_t parser;
	yaml_event_t event; /* the current event */
	const char *file;
	const char *text;
	struct pr_arena *arena;
	struct pr_faults *faults;
	bool nomem;
};

void pr_fault(struct pr_faults *faults, const char *format, ...)
{
	char line[1500];
	va_list args;

	if (faults->count++ >= PR_FAULTS_MAX)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	for (char *c = line; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = ' ';
	}
	pr_buf_puts(&faults->text, line);
	pr_buf_putc(&faults->text, '\n');
}

void pr_faults_release(struct pr_faults *faults)
{
	pr_buf_release(&faults->text);
	faults->count = 0;
}

static int line_of(yaml_mark_t mark)
{
	return (int)mark.line + 1;
}

/* Whether the white space before a line's first word has a tab in it. */
static bool is_tabbed(const char *text, int line)
{
	for (; line > 1 && *text; text++)
		line -= *text == '\n';
	return text[strspn(text, " ")] == '\t';
}

static void report_syntax(struct reader *reader)
{
	const yaml_parser_t *parser = &reader->parser;
	const char *problem = parser->problem ? parser->problem : "it cannot be read";
	int line = line_of(parser->problem_mark);

	if (parser->error == YAML_MEMORY_ERROR)
		reader->nomem = true;
	else if (parser->error == YAML_READER_ERROR)
		pr_fault(reader->faults, "%s: byte %zu: %s; the file has to be UTF-8", reader->file,
			 parser->problem_offset, problem);
	else if (parser->error == YAML_SCANNER_ERROR && is_tabbed(reader->text, line))
		pr_fault(reader->faults, "%s:%d: a tab is not allowed; indent YAML with spaces",
			 reader->file, line);
	else
		pr_fault(reader->faults, "%s:%d: %s%s%s", reader->file, line,
			 parser->context ? parser->context : "", parser->context ? ", " : "",
			 problem);
}

/* Moves on to the next event; false: there is none, and the error was reported. */
static bool advance(struct reader *reader)
{
	yaml_event_delete(&reader->event);
	if (yaml_parser_parse(&reader->parser, &reader->event))
		return true;
	report_syntax(reader);
	return false;
}

static bool refuse(struct reader *reader, const char *fault)
{
	pr_fault(reader->faults, "%s:%d: %s", reader->file, line_of(reader->event.start_mark),
		 fault);
	return false;
}

static bool is_nothing(const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;

	return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static bool fill_scalar(struct reader *reader, struct pr_yaml *node)
{
	const yaml_event_t *event = &reader->event;
	size_t len = event->data.scalar.length;

	if (memchr(event->data.scalar.value, '\0', len))
		return refuse(reader, "a value with a NUL in it");
	node->empty = is_nothing(event);
	node->text = pr_arena_copy(reader->arena, event->data.scalar.value, len);
	if (!node->text)
		reader->nomem = true;
	return node->text != NULL;
}

static bool read_name(struct reader *reader, const char **ret)
{
	const yaml_event_t *event = &reader->event;

	if (event->type == YAML_ALIAS_EVENT)
		return refuse(reader, "aliases (*name) are not understood; write the value again");
	if (event->type != YAML_SCALAR_EVENT || is_nothing(event) ||
	    event->data.scalar.length > NAME_MAX_BYTES ||
	    memchr(event->data.scalar.value, '\0', event->data.scalar.length))
		return refuse(reader, "a name has to be a short word");
	*ret = pr_arena_copy(reader->arena, event->data.scalar.value, event->data.scalar.length);
	if (!*ret)
		reader->nomem = true;
	return *ret && advance(reader);
}

static bool read_node(struct reader *reader, int depth, struct pr_yaml **ret);

static bool read_members(struct reader *reader, struct pr_yaml *node, int depth)
{
	bool map = node->kind == PR_YAML_MAP;
	yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
	struct pr_yaml **last = &node->first;
	int count = 0;

	if (depth == PR_YAML_DEPTH_MAX)
		return refuse(reader, "nested too deeply; no configuration needs that");
	if (!advance(reader))
		return false;
	while (reader->event.type != end) {
		int line = line_of(reader->event.start_mark);
		const struct pr_yaml *before = NULL;
		const char *name = NULL;

		if (count++ == PR_YAML_MEMBERS_MAX)
			return refuse(reader, "too many of them; no configuration needs that");
		if (map && !read_name(reader, &name))
			return false;
		if (map)
			before = pr_yaml_find(node, name);
		if (!read_node(reader, depth + 1, last) || !advance(reader))
			return false;
		if (before) {
			pr_fault(reader->faults,
				 "%s:%d: %s: is in line %d already; remove one of them",
				 reader->file, line, name, before->line);
			*last = NULL;
			continue;
		}
		(*last)->name = name;
		if (name)
			(*last)->line = line;
		last = &(*last)->next;
	}
	return true;
}

static bool is_tagged(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return event->data.scalar.tag != NULL;
	case YAML_SEQUENCE_START_EVENT:
		return event->data.sequence_start.tag != NULL;
	case YAML_MAPPING_START_EVENT:
		return event->data.mapping_start.tag != NULL;
	default:
		return false;
	}
}

/* Reads the node that begins with the current event; its last event stays the current one. */
static bool read_node(struct reader *reader, int depth, struct pr_yaml **ret)
{
	struct pr_yaml *node = pr_arena_alloc(reader->arena, sizeof(*node));

	if (!node) {
		reader->nomem = true;
		return false;
	}
	*node = (struct pr_yaml){ .line = line_of(reader->event.start_mark) };
	*ret = node;
	if (is_tagged(&reader->event))
		return refuse(reader, "tags (!name) are not understood; leave it out");
	switch (reader->event.type) {
	case YAML_SCALAR_EVENT:
		return fill_scalar(reader, node);
	case YAML_SEQUENCE_START_EVENT:
		node->kind = PR_YAML_LIST;
		return read_members(reader, node, depth);
	case YAML_MAPPING_START_EVENT:
		node->kind = PR_YAML_MAP;
		return read_members(reader, node, depth);
	default:
		return refuse(reader, "aliases (*name) are not understood; write the value again");
	}
}

/* From the stream's start to its end, which has to hold one document. */
static bool read_stream(struct reader *reader, struct pr_yaml **ret)
{
	if (!advance(reader) || !advance(reader))
		return false;
	if (reader->event.type == YAML_STREAM_END_EVENT) {
		pr_fault(reader->faults, "%s: is empty; postroom.yaml(5) has an example",
			 reader->file);
		return false;
	}
	if (!advance(reader) || !read_node(reader, 0, ret))
		return false;
	if ((*ret)->kind != PR_YAML_MAP) {
		pr_fault(reader->faults,
			 "%s:%d: a configuration consists of sections, as in \"relay:\"",
			 reader->file, (*ret)->line);
		return false;
	}
	if (!advance(reader) || !advance(reader))
		return false;
	if (reader->event.type != YAML_STREAM_END_EVENT)
		return refuse(reader, "a second document; there can be only one");
	return true;
}

/* text ends in a NUL, which len does not count. */
static int parse(struct reader *reader, size_t len, struct pr_yaml **ret, struct pr_err *err)
{
	struct pr_yaml *tree = NULL;

	if (!yaml_parser_initialize(&reader->parser))
		return pr_err_nomem(err);
	yaml_parser_set_input_string(&reader->parser, (const unsigned char *)reader->text, len);
	if (read_stream(reader, &tree))
		*ret = tree;
	yaml_event_delete(&reader->event);
	yaml_parser_delete(&reader->parser);
	return reader->nomem ? pr_err_nomem(err) : POSTROOM_OK;
}

static bool slurp(const char *file, struct pr_buf *text, struct pr_faults *faults)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	while (fd >= 0 && text->len <= PR_YAML_BYTES_MAX) {
		char *room = pr_buf_reserve(text, 65536);

		n = room ? read(fd, room, 65536) : 0;
		if (n > 0)
			text->len += (size_t)n;
		else if (n == 0 || errno != EINTR)
			break;
	}
	if (n < 0)
		pr_fault(faults, "%s: cannot be read: %s; name another file with --config", file,
			 strerror(errno));
	else if (text->len > PR_YAML_BYTES_MAX)
		pr_fault(
			faults,
			"%s: is larger than 1 MiB, the limit of a configuration; name another file",
			file);
	if (fd >= 0)
		close(fd);
	return n >= 0 && text->len <= PR_YAML_BYTES_MAX;
}

int pr_yaml_read(const char *file, struct pr_arena *arena, struct pr_faults *faults,
		 struct pr_yaml **ret, struct pr_err *err)
{
	struct reader reader = { .file = file, .arena = arena, .faults = faults };
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	*ret = NULL;
	if (!slurp(file, &text, faults))
		return POSTROOM_OK;
	pr_buf_putc(&text, '\0');
	if (text.failed)
		return pr_err_nomem(err);
	reader.text = text.data;
	return parse(&reader, text.len - 1, ret, err);
}

struct pr_yaml *pr_yaml_find(const struct pr_yaml *map, const char *name)
{
	for (struct pr_yaml *node = map->first; node; node = node->next) {
		if (pr_param_same_name(node->name, name))
			return node;
	}
	return NULL;
}
