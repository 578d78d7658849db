/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the objects that the migrations create, as rows of VALUES for the check "objects":
 * kind, relation, name, type, whether it is NOT NULL, default, definition.
 *
 * The list comes from the SQL of the migrations, so a new migration needs no second list. The
 * parser knows the layout of our own files: one column per line, indented by one tab.
 */
#include "store/pgsql/doctor.h"
#include "store/schema.h"

#include <ctype.h>
#include <string.h>

/* A part of a migration. */
struct text {
	const char *at;
	size_t len;
};

/* The end of a quoted text, a dollar-quoted text or a comment that begins at sql; sql: none does. */
static const char *skip_quoted(const char *sql)
{
	const char *end = NULL;

	if (strncmp(sql, "$$", 2) == 0)
		end = strstr(sql + 2, "$$");
	else if (strncmp(sql, "--", 2) == 0)
		end = strchr(sql, '\n');
	else if (*sql == '\'' || *sql == '"')
		end = strchr(sql + 1, *sql);
	else
		return sql;
	if (!end)
		return sql + strlen(sql);
	return end + (*end == '$' ? 2 : 1);
}

/* Passes blanks and comments, then ends before the semicolon. False: no statement is left. */
static bool next_statement(const char **at, struct text *ret)
{
	const char *sql = *at, *next;

	while (isspace((unsigned char)*sql) || strncmp(sql, "--", 2) == 0)
		sql = *sql == '-' ? skip_quoted(sql) : sql + 1;
	ret->at = sql;
	while (*sql && *sql != ';') {
		next = skip_quoted(sql);
		sql = next > sql ? next : sql + 1;
	}
	ret->len = (size_t)(sql - ret->at);
	*at = *sql ? sql + 1 : sql;
	return ret->len > 0;
}

static bool begins_with(struct text text, const char *words)
{
	return text.len >= strlen(words) && strncmp(text.at, words, strlen(words)) == 0;
}

/* The first occurrence of words; its length is that of the rest. */
static struct text find(struct text text, const char *words)
{
	const char *at = memmem(text.at, text.len, words, strlen(words));

	if (!at)
		return (struct text){ 0 };
	return (struct text){ at, text.len - (size_t)(at - text.at) };
}

static struct text after(struct text text, size_t len)
{
	return (struct text){ text.at + len, text.len - len };
}

/* A name, with or without quotes. */
static struct text name_at(struct text text)
{
	size_t len = 0;

	if (text.len > 0 && *text.at == '"')
		return (struct text){ text.at + 1, strcspn(text.at + 1, "\"") };
	while (len < text.len && (isalnum((unsigned char)text.at[len]) || text.at[len] == '_'))
		len++;
	return (struct text){ text.at, len };
}

static void put_text(struct pr_buf *out, struct text text)
{
	if (!text.at) {
		pr_buf_puts(out, "NULL::text");
		return;
	}
	pr_buf_puts(out, "$q$");
	pr_buf_append(out, text.at, text.len);
	pr_buf_puts(out, "$q$");
}

struct object {
	const char *kind;
	struct text relation, name, type, fallback, definition;
	bool not_null;
};

static void put_object(struct pr_buf *out, const struct object *object)
{
	const struct text fields[] = { object->relation, object->name, object->type,
				       object->fallback, object->definition };

	pr_buf_printf(out, "%s('%s', %s", out->data[out->len - 1] == ')' ? ", " : "", object->kind,
		      object->not_null ? "true" : "false");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		pr_buf_puts(out, ", ");
		put_text(out, fields[i]);
	}
	pr_buf_putc(out, ')');
}

/* From the beginning to the parenthesis that closes the first one. */
static struct text to_closing_parenthesis(struct text text)
{
	const char *at = text.at, *end = text.at + text.len;
	int depth = 0;

	while (at < end) {
		const char *next = skip_quoted(at);

		if (next > at) {
			at = next;
			continue;
		}
		depth += *at == '(';
		if (*at++ == ')' && --depth == 0)
			break;
	}
	return (struct text){ text.at, (size_t)(at - text.at) };
}

/* The constraints that have a name, of a table or of a domain. */
static void put_constraints(struct pr_buf *out, const char *kind, struct text relation,
			    struct text statement)
{
	static const char words[] = "CONSTRAINT ";
	struct text rest = statement;

	while ((rest = find(rest, words)).at) {
		struct object object = { .kind = kind, .relation = relation };

		object.name = name_at(after(rest, strlen(words)));
		object.definition = to_closing_parenthesis(rest);
		put_object(out, &object);
		rest = after(rest, object.definition.len);
	}
}

static struct text trim(struct text text)
{
	while (text.len > 0 && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == ','))
		text.len--;
	return text;
}

/* line: "topic text NOT NULL DEFAULT ''," */
static void put_column(struct pr_buf *out, struct text relation, struct text line)
{
	static const char *const ends[] = { " NOT NULL", " DEFAULT", " COLLATE", " GENERATED" };
	struct object object = { .kind = "column", .relation = relation, .name = name_at(line) };
	struct text fallback = find(line, " DEFAULT ");

	line = trim(line);
	object.definition = line;
	object.not_null = find(line, " NOT NULL").at != NULL;
	if (fallback.at && !find(line, " GENERATED ").at)
		object.fallback = trim(after(fallback, strlen(" DEFAULT ")));
	object.type = trim(after(line, object.name.len + 1));
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct text end = find(object.type, ends[i]);

		if (end.at)
			object.type.len = (size_t)(end.at - object.type.at);
	}
	put_object(out, &object);
}

static void put_columns(struct pr_buf *out, struct text relation, struct text statement)
{
	const char *at = statement.at, *end = statement.at + statement.len;

	while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
		const char *line = ++at;
		size_t len = strcspn(line, "\n");

		if (line < end && *line == ')')
			return;
		if (line + 1 < end && line[0] == '\t' && islower((unsigned char)line[1]))
			put_column(out, relation, (struct text){ line + 1, len - 1 });
		if (strncmp(line, "\tPRIMARY KEY", 12) == 0)
			put_object(out, &(struct object){ .kind = "primary key",
							  .relation = relation,
							  .name = relation,
							  .definition = trim((struct text){
								  line + 1, len - 1 }) });
	}
}

static void put_statement(struct pr_buf *out, struct text statement)
{
	static const struct {
		const char *words, *kind;
	} kinds[] = {
		{ "CREATE TABLE {schema}", "table" },	    { "CREATE VIEW {schema}", "view" },
		{ "CREATE SEQUENCE {schema}", "sequence" }, { "CREATE DOMAIN {schema}", "domain" },
		{ "CREATE FUNCTION {schema}", "function" }, { "CREATE TYPE {schema}", "type" },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct object object = { .kind = kinds[i].kind, .definition = statement };
		struct text body = find(statement, "$$");

		if (!begins_with(statement, kinds[i].words))
			continue;
		object.name = name_at(after(statement, strlen(kinds[i].words)));
		if (strcmp(object.kind, "function") == 0 && body.len > 4)
			object.type = (struct text){ body.at + 2, body.len - 4 };
		put_object(out, &object);
		if (strcmp(object.kind, "table") == 0) {
			put_columns(out, object.name, statement);
			put_constraints(out, "constraint", object.name, statement);
		} else if (strcmp(object.kind, "domain") == 0) {
			put_constraints(out, "rule", object.name, statement);
		}
	}
}

void pr_pgsql_put_objects(struct pr_buf *out)
{
	for (const struct pr_migration *migration = pr_schema_pgsql; migration->version;
	     migration++) {
		const char *at = migration->sql;
		struct text statement;

		while (next_statement(&at, &statement))
			put_statement(out, statement);
	}
}
