/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQL expressions of a mapping. They run in the application's transactions, with its search_path.
 * So every foreign name is quoted, every function has its schema, and the operands of operators
 * are cast to types for which pg_catalog has the very operator: no other schema can replace it.
 */
#include "adopt/parts.h"

#include <string.h>

#define UUID_PATTERN "'^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'"

static enum pr_adopt_type type_of(const struct pr_adopt *adopt, enum pr_adopt_part part)
{
	const struct pr_adopt_column *column = pr_adopt_column_of(adopt, part);

	return column ? column->type : PR_ADOPT_OTHER;
}

const struct pr_adopt_column *pr_adopt_split(const struct pr_adopt *adopt, const char *spec,
					     const char **ret_value)
{
	for (size_t i = 0; i < adopt->column_count; i++) {
		size_t len = strlen(adopt->columns[i].name);

		if (strncmp(spec, adopt->columns[i].name, len) == 0 && spec[len] == ':' &&
		    spec[len + 1]) {
			*ret_value = spec + len + 1;
			return &adopt->columns[i];
		}
	}
	return NULL;
}

static bool uses_column(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *name)
{
	const char *text = adopt->parts[part], *value = NULL;
	const struct pr_adopt_column *column = NULL;
	char word[70];

	if (!pr_adopt_has_part(adopt, part) || part == PR_ADOPT_OPEN)
		return false;
	if (adopt->expression[part]) {
		snprintf(word, sizeof(word), "{%s}", name);
		return strstr(text, word) != NULL;
	}
	if (part == PR_ADOPT_DONE || part == PR_ADOPT_ONLY)
		column = pr_adopt_split(adopt, text, &value);
	return strcmp(column ? column->name : text, name) == 0;
}

void pr_adopt_put_unused(const struct pr_adopt *adopt, struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->column_count; i++) {
		bool used = false;

		for (enum pr_adopt_part part = 0; part < PR_ADOPT_PARTS && !used; part++)
			used = uses_column(adopt, part, adopt->columns[i].name);
		if (!used)
			pr_buf_printf(out, "%s%s", out->len > 0 ? ", " : "", adopt->columns[i].name);
	}
}

void pr_adopt_put_ident(struct pr_buf *out, const char *name)
{
	pr_buf_putc(out, '"');
	for (; *name; name++) {
		if (*name == '"')
			pr_buf_putc(out, '"');
		pr_buf_putc(out, *name);
	}
	pr_buf_putc(out, '"');
}

/* Backslashes are doubled in an E string: correct whatever standard_conforming_strings is. */
void pr_adopt_put_literal(struct pr_buf *out, const char *text)
{
	pr_buf_puts(out, strchr(text, '\\') ? " E'" : "'");
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			pr_buf_putc(out, *text);
		pr_buf_putc(out, *text);
	}
	pr_buf_putc(out, '\'');
}

static void put_field(const char *row, const char *name, struct pr_buf *out)
{
	pr_buf_printf(out, "%s.", row);
	pr_adopt_put_ident(out, name);
}

/* {column} of an expression becomes the column of the row. */
static void put_expression(const char *text, const char *row, struct pr_buf *out)
{
	char name[64];

	for (; *text; text++) {
		size_t len = *text == '{' ? strcspn(text, "}") : 0;

		if (len == 0 || len >= sizeof(name)) {
			pr_buf_putc(out, *text);
			continue;
		}
		memcpy(name, text + 1, len - 1);
		name[len - 1] = '\0';
		put_field(row, name, out);
		text += len;
	}
}

static void put_raw(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		    struct pr_buf *out)
{
	const char *text = adopt->parts[part];

	if (adopt->expression[part]) {
		pr_buf_putc(out, '(');
		put_expression(text, row, out);
		pr_buf_putc(out, ')');
	} else if (pr_adopt_column_of(adopt, part)) {
		put_field(row, text, out);
	} else {
		char constant[1024];

		snprintf(constant, sizeof(constant), "%.*s", (int)strlen(text) - 2, text + 1);
		pr_adopt_put_literal(out, constant);
	}
}

static void put_time(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		     struct pr_buf *out)
{
	bool zoneless = type_of(adopt, part) == PR_ADOPT_TIMESTAMP;

	put_raw(adopt, part, row, out);
	if (zoneless) {
		pr_buf_puts(out, " AT TIME ZONE ");
		pr_adopt_put_literal(out, adopt->zone ? adopt->zone : "UTC");
	}
}

/* Bytes have no text of their own, and bytea_output of the session does not matter. */
static void put_as_text(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
			struct pr_buf *out)
{
	bool bytes = type_of(adopt, part) == PR_ADOPT_BYTES;

	pr_buf_puts(out, bytes ? "pg_catalog.encode(" : "");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, bytes ? ", 'hex'::text)" : "::text");
}

/* 16 bytes are a UUID. */
void pr_adopt_put_id(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (type_of(adopt, PR_ADOPT_ID) == PR_ADOPT_UUID) {
		put_raw(adopt, PR_ADOPT_ID, row, out);
		return;
	}
	pr_buf_puts(out, "CASE WHEN ");
	put_as_text(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, type_of(adopt, PR_ADOPT_ID) == PR_ADOPT_BYTES
				 ? " ~ '^[0-9a-f]{32}$'::text THEN "
				 : " ~ " UUID_PATTERN " THEN ");
	put_as_text(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, " ELSE pg_catalog.md5('adopt:' || ");
	pr_adopt_put_literal(out, adopt->name);
	pr_buf_puts(out, " || ':' || ");
	put_as_text(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, ") END::uuid");
}

/* A text, or NULL if it is empty. */
static void put_text(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		     struct pr_buf *out)
{
	pr_buf_puts(out, "nullif(");
	put_as_text(adopt, part, row, out);
	pr_buf_puts(out, ", '')");
}

/* The same of a key. Keys that are UUIDs as bytes are those of the UUIDs as text. */
static void put_key(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		    struct pr_buf *out)
{
	if (type_of(adopt, part) != PR_ADOPT_BYTES) {
		put_text(adopt, part, row, out);
		return;
	}
	pr_buf_puts(out, "CASE pg_catalog.octet_length(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, ") WHEN 16 THEN ");
	put_as_text(adopt, part, row, out);
	pr_buf_puts(out, "::uuid::text ELSE ");
	put_text(adopt, part, row, out);
	pr_buf_puts(out, " END");
}

static void put_text_or(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
			const char *fallback, struct pr_buf *out)
{
	pr_buf_puts(out, "coalesce(");
	put_text(adopt, part, row, out);
	pr_buf_printf(out, ", '%s')", fallback);
}

/* The key of a message with a tenant begins with the tenant and a slash. */
static void put_dedupe(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (pr_adopt_has_part(adopt, PR_ADOPT_TENANT)) {
		pr_buf_puts(out, "CASE WHEN pg_catalog.starts_with(pg_catalog.lower(");
		put_raw(adopt, PR_ADOPT_DEDUPE, row, out);
		pr_buf_puts(out, "::text), pg_catalog.lower(");
		put_raw(adopt, PR_ADOPT_TENANT, row, out);
		pr_buf_puts(out, "::text) || '/') THEN '' ELSE coalesce(");
		put_raw(adopt, PR_ADOPT_TENANT, row, out);
		pr_buf_puts(out, "::text || '/', '') END || ");
	}
	put_key(adopt, PR_ADOPT_DEDUPE, row, out);
}

static void put_payload(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_PAYLOAD)) {
		pr_buf_puts(out, "'null'::jsonb");
		return;
	}
	put_raw(adopt, PR_ADOPT_PAYLOAD, row, out);
	if (type_of(adopt, PR_ADOPT_PAYLOAD) != PR_ADOPT_JSONB)
		pr_buf_puts(out, "::jsonb");
}

static void put_body(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	bool bytes = type_of(adopt, PR_ADOPT_BODY) == PR_ADOPT_BYTES;

	pr_buf_puts(out, bytes ? "" : "pg_catalog.convert_to(");
	put_raw(adopt, PR_ADOPT_BODY, row, out);
	pr_buf_puts(out, bytes ? "" : "::text, 'UTF8')");
}

/* Values of headers are strings in every message. */
static void put_headers(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_buf_puts(out, "coalesce((SELECT pg_catalog.jsonb_object_agg(h.key, CASE pg_catalog.jsonb_typeof(h.value) "
			 "WHEN 'string' THEN h.value ELSE pg_catalog.to_jsonb(h.value::text) END) "
			 "FROM pg_catalog.jsonb_each(nullif(");
	if (type_of(adopt, PR_ADOPT_HEADERS) == PR_ADOPT_TEXT) {
		put_text(adopt, PR_ADOPT_HEADERS, row, out);
	} else {
		put_raw(adopt, PR_ADOPT_HEADERS, row, out);
	}
	pr_buf_puts(out, "::jsonb, 'null')) AS h WHERE pg_catalog.jsonb_typeof(h.value) <> 'null'), '{}')");
}

static const char *default_content_type(const struct pr_adopt *adopt)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_BODY))
		return "application/json";
	return type_of(adopt, PR_ADOPT_BODY) == PR_ADOPT_BYTES ? "application/octet-stream"
								: "text/plain";
}

/* Whether this column of postroom_outbox gets a value; others have their defaults. */
static bool is_written(const struct pr_adopt *adopt, enum pr_adopt_part part)
{
	return part == PR_ADOPT_PAYLOAD || pr_adopt_has_part(adopt, part) ||
	       (part == PR_ADOPT_NEXT && pr_adopt_has_part(adopt, PR_ADOPT_CREATED)) ||
	       (part == PR_ADOPT_CONTENT_TYPE && pr_adopt_has_part(adopt, PR_ADOPT_BODY));
}

static void put_content_type(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (pr_adopt_has_part(adopt, PR_ADOPT_CONTENT_TYPE))
		put_text_or(adopt, PR_ADOPT_CONTENT_TYPE, row, default_content_type(adopt), out);
	else
		pr_buf_printf(out, "'%s'", default_content_type(adopt));
}

/*
 * A row that is due has been so since its creation: it keeps its place, and postroom_outbox need
 * not find out whether it is delayed.
 */
static void put_next(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	bool mapped = pr_adopt_has_part(adopt, PR_ADOPT_NEXT);

	if (mapped) {
		pr_buf_puts(out, "greatest(");
		put_time(adopt, PR_ADOPT_NEXT, row, out);
		pr_buf_puts(out, ", ");
	}
	if (pr_adopt_has_part(adopt, PR_ADOPT_CREATED)) {
		pr_buf_puts(out, "least(");
		put_time(adopt, PR_ADOPT_CREATED, row, out);
		pr_buf_puts(out, ", pg_catalog.clock_timestamp())");
	} else {
		pr_buf_puts(out, "pg_catalog.clock_timestamp()");
	}
	if (mapped)
		pr_buf_putc(out, ')');
}

static void put_value(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		      struct pr_buf *out)
{
	switch (part) {
	case PR_ADOPT_NAMESPACE:
		put_text_or(adopt, part, row, "default", out);
		break;
	case PR_ADOPT_TENANT:
		put_raw(adopt, part, row, out);
		pr_buf_puts(out, type_of(adopt, part) == PR_ADOPT_UUID ? "" : "::text::uuid");
		break;
	case PR_ADOPT_DEDUPE:
		put_dedupe(adopt, row, out);
		break;
	case PR_ADOPT_KEY:
	case PR_ADOPT_CORRELATION:
		put_key(adopt, part, row, out);
		break;
	case PR_ADOPT_PAYLOAD:
		put_payload(adopt, row, out);
		break;
	case PR_ADOPT_BODY:
		put_body(adopt, row, out);
		break;
	case PR_ADOPT_CONTENT_TYPE:
		put_content_type(adopt, row, out);
		break;
	case PR_ADOPT_HEADERS:
		put_headers(adopt, row, out);
		break;
	case PR_ADOPT_NEXT:
		put_next(adopt, row, out);
		break;
	case PR_ADOPT_CREATED:
		pr_buf_puts(out, "coalesce(");
		put_time(adopt, part, row, out);
		pr_buf_puts(out, ", pg_catalog.clock_timestamp())");
		break;
	default:
		put_text(adopt, part, row, out);
	}
}

void pr_adopt_put_columns(const struct pr_adopt *adopt, struct pr_buf *out)
{
	for (enum pr_adopt_part part = 0; part < PR_ADOPT_COLUMNS; part++) {
		if (is_written(adopt, part))
			pr_buf_printf(out, "%s%s", part > 0 ? ", " : "", pr_adopt_part_names[part]);
	}
}

void pr_adopt_put_values(const struct pr_adopt *adopt, const char *row, const char *id,
			 struct pr_buf *out)
{
	if (id)
		pr_buf_puts(out, id);
	else
		pr_adopt_put_id(adopt, row, out);
	for (enum pr_adopt_part part = PR_ADOPT_ID + 1; part < PR_ADOPT_COLUMNS; part++) {
		if (!is_written(adopt, part))
			continue;
		pr_buf_puts(out, ",\n\t\t\t");
		put_value(adopt, part, row, out);
	}
}

static void put_now(const struct pr_adopt *adopt, const struct pr_adopt_column *column,
		    struct pr_buf *out)
{
	pr_buf_puts(out, "pg_catalog.clock_timestamp()");
	if (column->type != PR_ADOPT_TIMESTAMP)
		return;
	pr_buf_puts(out, " AT TIME ZONE ");
	pr_adopt_put_literal(out, adopt->zone ? adopt->zone : "UTC");
}

static const struct pr_adopt_dialect dialect = {
	.put_literal = pr_adopt_put_literal,
	.put_now = put_now,
	.has_booleans = true,
};

static void put_condition(const struct pr_adopt *adopt, const char *row, bool done,
			  struct pr_buf *out)
{
	const char *value = "";
	const struct pr_adopt_column *marker = pr_adopt_marker_of(adopt, &value);

	if (!marker) {
		pr_buf_puts(out, done ? "false" : "true");
		return;
	}
	if (adopt->done == PR_ADOPT_TIME) {
		put_field(row, marker->name, out);
		pr_buf_puts(out, done ? " IS NOT NULL" : " IS NULL");
	} else if (adopt->done == PR_ADOPT_STATUS) {
		pr_buf_puts(out, "coalesce(");
		put_field(row, marker->name, out);
		pr_buf_puts(out, "::text IN (");
		if (done)
			pr_adopt_put_literal(out, value);
		else
			pr_adopt_put_value_list(&dialect, adopt->parts[PR_ADOPT_OPEN], out);
		pr_buf_puts(out, "), false)");
	} else if (marker->type == PR_ADOPT_BOOL) {
		put_field(row, marker->name, out);
		pr_buf_puts(out, done ? " IS TRUE" : " IS NOT TRUE");
	} else {
		pr_buf_puts(out, "coalesce(");
		put_field(row, marker->name, out);
		pr_buf_puts(out, done ? ", 0) <> 0" : ", 0) = 0");
	}
}

void pr_adopt_put_only(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	const struct pr_adopt_column *column = NULL;
	const char *values = "";

	if (!pr_adopt_has_part(adopt, PR_ADOPT_ONLY)) {
		pr_buf_puts(out, "true");
		return;
	}
	pr_buf_puts(out, "coalesce(");
	if (adopt->expression[PR_ADOPT_ONLY]) {
		put_raw(adopt, PR_ADOPT_ONLY, row, out);
	} else {
		column = pr_adopt_split(adopt, adopt->parts[PR_ADOPT_ONLY], &values);
		put_field(row, column ? column->name : "", out);
		pr_buf_puts(out, "::text IN (");
		pr_adopt_put_value_list(&dialect, values, out);
		pr_buf_putc(out, ')');
	}
	pr_buf_puts(out, ", false)");
}

void pr_adopt_put_open(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	put_condition(adopt, row, false, out);
	if (!pr_adopt_has_part(adopt, PR_ADOPT_ONLY))
		return;
	pr_buf_puts(out, " AND ");
	pr_adopt_put_only(adopt, row, out);
}

void pr_adopt_put_done(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	put_condition(adopt, row, true, out);
}

void pr_adopt_put_free(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_adopt_put_open(adopt, row, out);
	if (!pr_adopt_has_part(adopt, PR_ADOPT_LOCKED))
		return;
	pr_buf_puts(out, " AND coalesce(");
	put_time(adopt, PR_ADOPT_LOCKED, row, out);
	pr_buf_puts(out, " < pg_catalog.clock_timestamp(), true)");
}

void pr_adopt_put_mark(const struct pr_adopt *adopt, bool done, struct pr_buf *out)
{
	pr_adopt_put_assignments(adopt, &dialect, done, out);
}

void pr_adopt_put_same(const struct pr_adopt *adopt, const char *a, const char *b,
		       struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->key_count; i++) {
		const char *name = adopt->columns[adopt->key[i]].name;

		pr_buf_puts(out, i > 0 ? " AND " : "");
		put_field(a, name, out);
		pr_buf_printf(out, " %s ", adopt->equals[i]);
		put_field(b, name, out);
	}
}

void pr_adopt_put_row_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_buf_puts(out, "pg_catalog.concat_ws(','");
	for (size_t i = 0; i < adopt->key_count; i++) {
		pr_buf_puts(out, ", ");
		put_field(row, adopt->columns[adopt->key[i]].name, out);
	}
	pr_buf_putc(out, ')');
}

void pr_adopt_put_order(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (pr_adopt_has_part(adopt, PR_ADOPT_CREATED)) {
		put_raw(adopt, PR_ADOPT_CREATED, row, out);
		pr_buf_puts(out, ", ");
	}
	for (size_t i = 0; i < adopt->key_count; i++) {
		pr_buf_puts(out, i > 0 ? ", " : "");
		put_field(row, adopt->columns[adopt->key[i]].name, out);
	}
}
