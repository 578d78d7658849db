/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions of a mapping in SQLite. They run in the application's transactions, where nothing can
 * catch an error: so each of them gives some value for every row, and never fails.
 */
#include "adopt/sqlite/sqlite.h"

#include <string.h>

/* Times that a message can have: between 1970 and 9999, in microseconds. */
#define TIME_MAX "253402300799999999"
#define NOW_US "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"
/* Characters of an id that its hash includes. Numbers are shorter. */
#define HASHED_TEXT 255
#define HASHED_NUMBER 20

static void put_field(const char *row, const char *name, struct pr_buf *out)
{
	pr_buf_printf(out, "%s.", row);
	pr_adopt_put_ident(out, name);
}

static void put_raw(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		    struct pr_buf *out)
{
	const struct pr_adopt_column *column = pr_adopt_column_of(adopt, part);
	char constant[1024];

	if (!pr_adopt_has_part(adopt, part)) {
		pr_buf_puts(out, "NULL");
	} else if (column) {
		put_field(row, column->name, out);
	} else {
		snprintf(constant, sizeof(constant), "%.*s", (int)strlen(adopt->parts[part]) - 2,
			 adopt->parts[part] + 1);
		pr_adopt_sqlite_put_literal(out, constant);
	}
}

static void put_text(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		     struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, part)) {
		pr_buf_puts(out, "NULL");
		return;
	}
	pr_buf_puts(out, "nullif(CAST(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, " AS TEXT), '')");
}

static void put_text_or(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
			const char *fallback, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, part)) {
		pr_buf_printf(out, "'%s'", fallback);
		return;
	}
	pr_buf_puts(out, "coalesce(");
	put_text(adopt, part, row, out);
	pr_buf_printf(out, ", '%s')", fallback);
}

/* 32 hex digits in lower case, if the value is a UUID as text or as 16 bytes. */
static void put_digits(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		       struct pr_buf *out)
{
	pr_buf_puts(out, "CASE WHEN typeof(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, ") = 'blob' THEN lower(hex(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, ")) ELSE lower(replace(CAST(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, " AS TEXT), '-', '')) END");
}

static void put_hyphens(const char *digits, struct pr_buf *out)
{
	pr_buf_printf(
		out,
		"substr(%s, 1, 8) || '-' || substr(%s, 9, 4) || '-' || substr(%s, 13, 4) || '-' || "
		"substr(%s, 17, 4) || '-' || substr(%s, 21)",
		digits, digits, digits, digits, digits);
}

/* Bytes have no text of their own: 16 of them are a UUID, and others are hex digits. */
static void put_name(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		     struct pr_buf *out)
{
	const struct pr_adopt_column *column = pr_adopt_column_of(adopt, part);

	if (!column || (column->type != PR_ADOPT_UUID && column->type != PR_ADOPT_BYTES)) {
		put_text(adopt, part, row, out);
		return;
	}
	pr_buf_puts(out, "(SELECT CASE WHEN typeof(d.v) <> 'blob' THEN nullif(CAST(d.v AS TEXT), '') WHEN "
			 "length(d.v) = 16 THEN ");
	put_hyphens("d.u", out);
	pr_buf_puts(out, " ELSE nullif(d.u, '') END FROM (SELECT ");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, " AS v, lower(hex(");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, ")) AS u) AS d)");
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* Depends on the table's name only, so that a row has the same id in every run. */
static uint64_t seed_of(const struct pr_adopt *adopt, uint64_t seed)
{
	for (const char *at = adopt->function; *at; at++)
		seed = (seed ^ (unsigned char)*at) * 1099511628211u;
	return seed;
}

/*
 * Half of a hash: characters multiplied by random weights of 38 bits, which are the same for a
 * table whenever it is adopted. The sum has at most 62 bits, so it never overflows.
 */
static void put_half(const struct pr_adopt *adopt, uint64_t seed, struct pr_buf *out)
{
	const struct pr_adopt_column *column = pr_adopt_column_of(adopt, PR_ADOPT_ID);
	int count = column && column->type == PR_ADOPT_INT ? HASHED_NUMBER : HASHED_TEXT;
	uint64_t state = seed_of(adopt, seed);

	pr_buf_puts(out, "(SELECT sum((unicode(substr(d.x, w.key + 1, 1)) & 65535) * w.value) FROM "
			 "json_each('[");
	for (int i = 0; i < count; i++)
		pr_buf_printf(out, "%s%llu", i > 0 ? "," : "",
			      (unsigned long long)(next_random(&state) >> 26));
	pr_buf_puts(out, "]') AS w WHERE w.key < length(d.x))");
}

/* Numbers are the last 48 bits: three times as fast as their hash. */
static void put_number_id(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	uint64_t state = seed_of(adopt, 3), high = next_random(&state), low = next_random(&state);

	pr_buf_puts(out, "CASE WHEN typeof(");
	put_raw(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, ") = 'integer' AND ");
	put_raw(adopt, PR_ADOPT_ID, row, out);
	pr_buf_printf(out,
		      " BETWEEN 0 AND 281474976710655 THEN printf('%08x-%04x-8%03x-a%03x-%%012x', ",
		      (unsigned)(high >> 32), (unsigned)(high >> 16 & 0xffff),
		      (unsigned)(high & 0xfff), (unsigned)(low & 0xfff));
	put_raw(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, ") ELSE ");
}

/*
 * Other ids become a UUID of version 8 by a hash: SQLite has no function for one. If the id is an
 * expression, OLD was another message, and the id is a new one.
 */
void pr_adopt_sqlite_put_id(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	const struct pr_adopt_column *column = pr_adopt_column_of(adopt, PR_ADOPT_ID);

	if (adopt->expression[PR_ADOPT_ID]) {
		pr_buf_puts(out, "CASE WHEN ");
		pr_adopt_sqlite_put_done(adopt, "OLD", out);
		pr_buf_puts(out, " THEN " ADOPT_SQLITE_NEW_ID " ELSE ");
	}
	if (column && column->type == PR_ADOPT_INT)
		put_number_id(adopt, row, out);
	pr_buf_puts(out, "(SELECT CASE WHEN length(d.u) = 32 AND d.u NOT GLOB '*[^0-9a-f]*' THEN ");
	put_hyphens("d.u", out);
	pr_buf_puts(out,
		    " ELSE (SELECT printf('%08x-%04x-8%03x-%04x-%012x', h.a >> 28 & 4294967295, "
		    "h.a >> 12 & 65535, h.a & 4095, 32768 | (h.b >> 48 & 16383), "
		    "h.b & 281474976710655) FROM (SELECT ");
	put_half(adopt, 1, out);
	pr_buf_puts(out, " AS a, ");
	put_half(adopt, 2, out);
	pr_buf_puts(out, " AS b) AS h WHERE h.a IS NOT NULL) END FROM (SELECT ");
	put_digits(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, " AS u, ");
	put_name(adopt, PR_ADOPT_ID, row, out);
	pr_buf_puts(out, " AS x) AS d)");
	if (column && column->type == PR_ADOPT_INT)
		pr_buf_puts(out, " END");
	if (adopt->expression[PR_ADOPT_ID])
		pr_buf_puts(out, " END");
}

static void put_tenant(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_TENANT)) {
		pr_buf_puts(out, "NULL");
		return;
	}
	pr_buf_puts(out, "(SELECT CASE length(d.u) WHEN 32 THEN ");
	put_hyphens("d.u", out);
	pr_buf_puts(out, " ELSE nullif(d.u, '') END FROM (SELECT ");
	put_digits(adopt, PR_ADOPT_TENANT, row, out);
	pr_buf_puts(out, " AS u) AS d)");
}

/* The key of a message with a tenant begins with the tenant and a slash. */
static void put_dedupe(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_TENANT) ||
	    !pr_adopt_has_part(adopt, PR_ADOPT_DEDUPE)) {
		put_name(adopt, PR_ADOPT_DEDUPE, row, out);
		return;
	}
	pr_buf_puts(out,
		    "(SELECT CASE WHEN d.t IS NULL OR lower(substr(d.k, 1, length(d.t) + 1)) = "
		    "d.t || '/' THEN d.k ELSE d.t || '/' || d.k END FROM (SELECT ");
	put_tenant(adopt, row, out);
	pr_buf_puts(out, " AS t, ");
	put_name(adopt, PR_ADOPT_DEDUPE, row, out);
	pr_buf_puts(out, " AS k) AS d)");
}

/* Values of headers are strings in every message. Other JSON is refused later. */
static void put_headers(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_HEADERS)) {
		pr_buf_puts(out, "'{}'");
		return;
	}
	pr_buf_puts(out, "(SELECT CASE WHEN d.h IS NULL OR d.h = 'null' THEN '{}' WHEN NOT "
			 "json_valid(d.h) THEN "
			 "d.h WHEN json_type(d.h) <> 'object' THEN d.h ELSE (SELECT "
			 "json_group_object(e.key, "
			 "CASE e.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE "
			 "CAST(e.value AS TEXT) || '' END) FROM json_each(d.h) AS e WHERE e.type "
			 "<> 'null') END "
			 "FROM (SELECT ");
	put_text(adopt, PR_ADOPT_HEADERS, row, out);
	pr_buf_puts(out, " AS h) AS d)");
}

/* Numbers are seconds, milliseconds, microseconds or Julian days, by their size. */
static void put_time(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *row,
		     struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, part)) {
		pr_buf_puts(out, "NULL");
		return;
	}
	pr_buf_puts(
		out,
		"(SELECT CASE WHEN d.us BETWEEN 0 AND " TIME_MAX " THEN d.us END FROM (SELECT CASE "
		"typeof(r.v) WHEN 'integer' THEN CASE WHEN abs(r.v / 2) < 50000000000 THEN r.v * "
		"1000000 WHEN abs(r.v / 2) < 50000000000000 THEN r.v * 1000 ELSE r.v END WHEN "
		"'real' "
		"THEN CAST(CASE WHEN r.v < 10000000.0 THEN (r.v - 2440587.5) * 86400000000.0 ELSE "
		"r.v * "
		"1000000.0 END AS INTEGER) ELSE CAST(round((julianday(r.v) - 2440587.5) * "
		"86400000.0) AS INTEGER) * 1000 END AS us FROM (SELECT ");
	put_raw(adopt, part, row, out);
	pr_buf_puts(out, " AS v) AS r) AS d)");
}

/* A row that is due keeps its place among others: its due time is that of its creation. */
static void put_times(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (!pr_adopt_has_part(adopt, PR_ADOPT_NEXT)) {
		pr_buf_puts(out, "coalesce(");
		put_time(adopt, PR_ADOPT_CREATED, row, out);
		pr_buf_puts(out, ", " NOW_US ") AS next_attempt_at,\n\t\tcoalesce(");
		put_time(adopt, PR_ADOPT_CREATED, row, out);
		pr_buf_puts(out, ", " NOW_US ") AS created_at");
		return;
	}
	pr_buf_puts(out, "(SELECT CASE WHEN d.n > " NOW_US " THEN d.n ELSE coalesce(d.c, " NOW_US
			 ") END FROM (SELECT ");
	put_time(adopt, PR_ADOPT_NEXT, row, out);
	pr_buf_puts(out, " AS n, ");
	put_time(adopt, PR_ADOPT_CREATED, row, out);
	pr_buf_puts(out, " AS c) AS d) AS next_attempt_at,\n\t\tcoalesce(");
	put_time(adopt, PR_ADOPT_CREATED, row, out);
	pr_buf_puts(out, ", " NOW_US ") AS created_at");
}

static void put_content(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	const struct pr_adopt_column *body = pr_adopt_column_of(adopt, PR_ADOPT_BODY);
	const char *type = "application/json";

	if (pr_adopt_has_part(adopt, PR_ADOPT_PAYLOAD)) {
		pr_buf_puts(out, "CAST(");
		put_raw(adopt, PR_ADOPT_PAYLOAD, row, out);
		pr_buf_puts(out, " AS TEXT) AS payload,\n\t\t");
	} else {
		pr_buf_puts(out, "'null' AS payload,\n\t\t");
	}
	if (body) {
		type = body->type == PR_ADOPT_BYTES ? "application/octet-stream" : "text/plain";
		pr_buf_puts(out, "CAST(");
		put_raw(adopt, PR_ADOPT_BODY, row, out);
		pr_buf_puts(out, " AS BLOB) AS body,\n\t\t");
	} else {
		pr_buf_puts(out, "NULL AS body,\n\t\t");
	}
	put_text_or(adopt, PR_ADOPT_CONTENT_TYPE, row, type, out);
	pr_buf_puts(out, " AS content_type,\n\t\t");
}

void pr_adopt_sqlite_put_message(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_buf_printf(out, "%s._rowid_ AS postroom_row, ", row);
	pr_adopt_sqlite_put_key(adopt, row, out);
	pr_buf_puts(out, " AS postroom_key,\n\t\t");
	pr_adopt_sqlite_put_id(adopt, row, out);
	pr_buf_puts(out, " AS id,\n\t\t");
	put_text_or(adopt, PR_ADOPT_NAMESPACE, row, "default", out);
	pr_buf_puts(out, " AS namespace,\n\t\t");
	put_text(adopt, PR_ADOPT_TOPIC, row, out);
	pr_buf_puts(out, " AS topic,\n\t\t");
	put_tenant(adopt, row, out);
	pr_buf_puts(out, " AS tenant_id,\n\t\t");
	put_name(adopt, PR_ADOPT_KEY, row, out);
	pr_buf_puts(out, " AS key,\n\t\t");
	put_dedupe(adopt, row, out);
	pr_buf_puts(out, " AS dedupe_key,\n\t\t");
	put_name(adopt, PR_ADOPT_CORRELATION, row, out);
	pr_buf_puts(out, " AS correlation_id,\n\t\t");
	put_content(adopt, row, out);
	put_headers(adopt, row, out);
	pr_buf_puts(out, " AS headers,\n\t\t");
	put_times(adopt, row, out);
}

/* The declared primary key as text, bytes as hex digits, or else the number of the row. */
void pr_adopt_sqlite_put_key(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (adopt->key_count == 0)
		pr_buf_printf(out, "CAST(%s._rowid_ AS TEXT)", row);
	for (size_t i = 0; i < adopt->key_count; i++) {
		const char *name = adopt->columns[adopt->key[i]].name;

		pr_buf_puts(out, i > 0 ? " || ',' || " : "");
		pr_buf_puts(out, "coalesce(CASE typeof(");
		put_field(row, name, out);
		pr_buf_puts(out, ") WHEN 'blob' THEN lower(hex(");
		put_field(row, name, out);
		pr_buf_puts(out, ")) ELSE CAST(");
		put_field(row, name, out);
		pr_buf_puts(out, " AS TEXT) END, '')");
	}
}

/* As the application writes it. */
static void put_now(const struct pr_adopt *adopt, const struct pr_adopt_column *column,
		    struct pr_buf *out)
{
	static const char *const now[] = {
		[PR_ADOPT_TIME_TEXT] = "strftime('%Y-%m-%d %H:%M:%f', 'now')",
		[PR_ADOPT_TIME_ISO] = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
		[PR_ADOPT_TIME_SECONDS] = "CAST(strftime('%s', 'now') AS INTEGER)",
		[PR_ADOPT_TIME_MILLISECONDS] = "(" NOW_US " / 1000)",
		[PR_ADOPT_TIME_MICROSECONDS] = NOW_US,
	};

	(void)adopt;
	pr_buf_puts(out, now[column->time]);
}

static const struct pr_adopt_dialect dialect = {
	.put_literal = pr_adopt_sqlite_put_literal,
	.put_now = put_now,
};

static void put_condition(const struct pr_adopt *adopt, const char *row, bool done,
			  struct pr_buf *out)
{
	const char *value = "";
	const struct pr_adopt_column *marker = pr_adopt_marker_of(adopt, &value);

	if (!marker) {
		pr_buf_puts(out, done ? "0" : "1");
	} else if (adopt->done == PR_ADOPT_TIME) {
		put_field(row, marker->name, out);
		pr_buf_puts(out, done ? " IS NOT NULL" : " IS NULL");
	} else if (adopt->done == PR_ADOPT_STATUS) {
		pr_buf_puts(out, "coalesce(CAST(");
		put_field(row, marker->name, out);
		pr_buf_puts(out, " AS TEXT) IN (");
		if (done)
			pr_adopt_sqlite_put_literal(out, value);
		else
			pr_adopt_put_value_list(&dialect, adopt->parts[PR_ADOPT_OPEN], out);
		pr_buf_puts(out, "), 0)");
	} else {
		pr_buf_puts(out, "coalesce(");
		put_field(row, marker->name, out);
		pr_buf_puts(out, done ? ", 0) <> 0" : ", 0) = 0");
	}
}

void pr_adopt_sqlite_put_only(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	const char *values = "";
	const struct pr_adopt_column *column = NULL;

	if (pr_adopt_has_part(adopt, PR_ADOPT_ONLY))
		column = pr_adopt_split(adopt, adopt->parts[PR_ADOPT_ONLY], &values);
	if (!column) {
		pr_buf_puts(out, "1");
		return;
	}
	pr_buf_puts(out, "coalesce(CAST(");
	put_field(row, column->name, out);
	pr_buf_puts(out, " AS TEXT) IN (");
	pr_adopt_put_value_list(&dialect, values, out);
	pr_buf_puts(out, "), 0)");
}

void pr_adopt_sqlite_put_open(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	put_condition(adopt, row, false, out);
	pr_buf_puts(out, " AND ");
	pr_adopt_sqlite_put_only(adopt, row, out);
}

void pr_adopt_sqlite_put_done(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	put_condition(adopt, row, true, out);
}

void pr_adopt_sqlite_put_free(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	pr_adopt_sqlite_put_open(adopt, row, out);
	if (!pr_adopt_has_part(adopt, PR_ADOPT_LOCKED))
		return;
	pr_buf_puts(out, " AND coalesce(");
	put_time(adopt, PR_ADOPT_LOCKED, row, out);
	pr_buf_puts(out, ", 0) < " NOW_US);
}

void pr_adopt_sqlite_put_mark(const struct pr_adopt *adopt, bool done, struct pr_buf *out)
{
	pr_adopt_put_assignments(adopt, &dialect, done, out);
}

void pr_adopt_sqlite_put_order(const struct pr_adopt *adopt, const char *row, struct pr_buf *out)
{
	if (pr_adopt_has_part(adopt, PR_ADOPT_CREATED)) {
		put_raw(adopt, PR_ADOPT_CREATED, row, out);
		pr_buf_puts(out, ", ");
	}
	pr_buf_printf(out, "%s._rowid_", row);
}
