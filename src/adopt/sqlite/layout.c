/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a table in SQLite. Declared types say little there, and there is none for times,
 * booleans and UUIDs: so samples of the values decide, too.
 */
#include "adopt/sqlite/sqlite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define DOING "reading the layout of the table"

/* Kinds of values in a column. */
struct values {
	int64_t any, uuids, blobs, integers, texts, dates, zoned, with_t;
	int64_t largest;
};

static void take_values(void *context, sqlite3_stmt *row)
{
	struct values *values = context;
	int64_t *const fields[] = { &values->any,      &values->uuids,	&values->blobs,
				    &values->integers, &values->texts,	&values->dates,
				    &values->zoned,    &values->with_t, &values->largest };

	for (int i = 0; i < (int)(sizeof(fields) / sizeof(fields[0])); i++)
		*fields[i] = sqlite3_column_int64(row, i);
}

static int read_values(struct pr_adopt *adopt, const char *name, struct values *ret,
		       struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_puts(
		&sql,
		"SELECT count(*), count(*) FILTER (WHERE CASE typeof(v) WHEN 'blob' THEN "
		"length(v) = 16 ELSE length(replace(v, '-', '')) = 32 AND (length(v) = 32 OR v "
		"LIKE '________-____-____-____-____________') AND replace(lower(v), '-', '') NOT "
		"GLOB '*[^0-9a-f]*' END), count(*) FILTER (WHERE typeof(v) = 'blob'), count(*) "
		"FILTER (WHERE typeof(v) = 'integer'), count(*) FILTER (WHERE typeof(v) = 'text'), "
		"count(*) FILTER (WHERE v GLOB '[12][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]*'), "
		"count(*) FILTER (WHERE v GLOB '*Z' OR v GLOB '*[-+][0-9][0-9]:[0-9][0-9]'), "
		"count(*) FILTER (WHERE v LIKE '____-__-__T%'), "
		"max(CASE typeof(v) WHEN 'integer' THEN v ELSE 0 END) FROM (SELECT ");
	pr_adopt_put_ident(&sql, name);
	pr_buf_printf(&sql, " AS v FROM %s LIMIT 1000) WHERE v IS NOT NULL", adopt->name);
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_query(adopt, sql.data, DOING, take_values, ret, err);
}

static bool has_word(const char *text, const char *word)
{
	return sqlite3_strlike(word, text, 0) == 0;
}

static bool is_named_as_time(const char *name)
{
	static const char *const endings[] = { "%\\_at",  "%\\_on", "%At",   "%On",
					       "%Utc",	  "%time%", "%date", "timestamp",
					       "created", "added",  "%until" };

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		if (sqlite3_strlike(endings[i], name, '\\') == 0)
			return true;
	}
	return false;
}

static enum pr_adopt_time time_of(const struct values *values, bool is_integer)
{
	if (values->integers > 0 || (values->any == 0 && is_integer)) {
		if (values->largest > 100000000000000)
			return PR_ADOPT_TIME_MICROSECONDS;
		return values->largest > 100000000000 ? PR_ADOPT_TIME_MILLISECONDS
						      : PR_ADOPT_TIME_SECONDS;
	}
	return values->with_t > 0 ? PR_ADOPT_TIME_ISO : PR_ADOPT_TIME_TEXT;
}

/* Texts without a zone are in UTC if SQLite itself writes them. */
static enum pr_adopt_type zone_of(const struct pr_adopt_column *column, const struct values *values)
{
	bool by_default = has_word(column->fallback, "%current_timestamp%") ||
			  has_word(column->fallback, "%'now'%");
	bool numbers = column->time >= PR_ADOPT_TIME_SECONDS;

	return numbers || by_default || (values->zoned > 0 && values->zoned == values->any)
		       ? PR_ADOPT_TIMESTAMPTZ
		       : PR_ADOPT_TIMESTAMP;
}

static void classify(struct pr_adopt_column *column, const char *declared,
		     const struct values *values)
{
	bool is_integer = has_word(declared, "%int%"), is_bool = has_word(declared, "%bool%");
	bool seconds = values->integers > 0 && values->largest > 100000000;
	bool is_time = has_word(declared, "%date%") || has_word(declared, "%time%") ||
		       (!is_bool && is_named_as_time(column->name) &&
			(seconds || (values->dates > 0 && values->dates == values->any) ||
			 (values->any == 0 && !has_word(column->name, "is%"))));

	column->time = time_of(values, is_integer);
	if (is_time)
		column->type = zone_of(column, values);
	else if (is_bool)
		column->type = PR_ADOPT_BOOL;
	else if (has_word(declared, "%uuid%") || has_word(declared, "%guid%") ||
		 has_word(declared, "uniqueidentifier") ||
		 (values->any > 0 && values->uuids == values->any))
		column->type = PR_ADOPT_UUID;
	else if (is_integer)
		column->type = PR_ADOPT_INT;
	else if (has_word(declared, "%json%"))
		column->type = PR_ADOPT_JSON;
	else if (has_word(declared, "%blob%") && values->texts == 0)
		column->type = PR_ADOPT_BYTES;
	else
		column->type = values->blobs > values->texts ? PR_ADOPT_BYTES : PR_ADOPT_TEXT;
}

struct reading {
	struct pr_adopt *adopt;
	const char *declared[256];
	bool failed;
};

static void add_column(void *context, sqlite3_stmt *row)
{
	struct reading *reading = context;
	struct pr_adopt *adopt = reading->adopt;
	struct pr_adopt_column *column = &adopt->columns[adopt->column_count];
	const char *name = (const char *)sqlite3_column_text(row, 0);
	const char *declared = (const char *)sqlite3_column_text(row, 1);
	const char *fallback = (const char *)sqlite3_column_text(row, 2);

	if (adopt->column_count >= sizeof(reading->declared) / sizeof(reading->declared[0]))
		return;
	column->name = pr_arena_strdup(&adopt->arena, name ? name : "");
	column->fallback = pr_arena_strdup(&adopt->arena, fallback ? fallback : "");
	column->generated = sqlite3_column_int(row, 4) > 1;
	column->not_null = sqlite3_column_int(row, 5);
	reading->declared[adopt->column_count] = pr_arena_strdup(&adopt->arena,
								 declared ? declared : "");
	if (!column->name || !column->fallback || !reading->declared[adopt->column_count]) {
		reading->failed = true;
		return;
	}
	if (sqlite3_column_int(row, 3) > 0 && adopt->key_count < PR_ADOPT_KEY_MAX)
		adopt->key[adopt->key_count++] = adopt->column_count;
	adopt->column_count++;
}

static int read_columns(struct pr_adopt *adopt, struct pr_err *err)
{
	struct reading reading = { .adopt = adopt };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	adopt->columns = pr_arena_alloc(&adopt->arena, 256 * sizeof(*adopt->columns));
	if (!adopt->columns)
		return pr_err_nomem(err);
	memset(adopt->columns, 0, 256 * sizeof(*adopt->columns));
	pr_buf_puts(&sql, "SELECT name, type, dflt_value, pk, hidden, \"notnull\" FROM pragma_table_xinfo(");
	pr_adopt_sqlite_put_literal(&sql, adopt->table);
	pr_buf_puts(&sql, ") WHERE hidden <> 1 ORDER BY cid");
	if (sql.failed)
		return pr_err_nomem(err);
	status = pr_adopt_sqlite_query(adopt, sql.data, DOING, add_column, &reading, err);
	if (status >= 0 && reading.failed)
		return pr_err_nomem(err);
	for (size_t i = 0; i < adopt->column_count && status >= 0; i++) {
		struct values values = { 0 };

		status = read_values(adopt, adopt->columns[i].name, &values, err);
		classify(&adopt->columns[i], reading.declared[i], &values);
	}
	return status;
}

struct named {
	struct pr_adopt *adopt;
	char type[16];
	bool without_rowid, hides_rowid, found;
};

static void take_name(void *context, sqlite3_stmt *row)
{
	struct named *named = context;

	named->adopt->table = pr_arena_strdup(&named->adopt->arena,
					      (const char *)sqlite3_column_text(row, 0));
	snprintf(named->type, sizeof(named->type), "%s", (const char *)sqlite3_column_text(row, 1));
	named->without_rowid = sqlite3_column_int(row, 2);
	named->hides_rowid = sqlite3_column_int(row, 3);
	named->found = true;
}

static int check_kind(const struct named *named, const char *table, struct pr_err *err)
{
	if (!named->found)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: there is no table %s in %s; check the name", table,
				  sqlite_store(named->adopt->store)->path);
	if (strcmp(named->type, "table") != 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a view or a virtual table, which cannot have the "
				  "triggers of a mirror; name the table behind it",
				  table);
	if (named->without_rowid)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a WITHOUT ROWID table, whose rows adopt cannot "
				  "identify; let the application insert into postroom_outbox",
				  table);
	if (named->hides_rowid)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"adopt: %s has a column _rowid_, which hides the number of the row, so "
			"adopt cannot identify its rows; rename the column",
			table);
	if (strncmp(named->adopt->table, "postroom_", 9) == 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a table of Postroom; name the table that your "
				  "application writes",
				  table);
	return POSTROOM_OK;
}

/* Names are compared without regard to case, as SQLite does. */
static int find_table(struct pr_adopt *adopt, const char *table, struct pr_err *err)
{
	struct named named = { .adopt = adopt };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int status;

	pr_buf_puts(&sql,
		    "SELECT name, type, wr, EXISTS (SELECT 1 FROM pragma_table_xinfo(l.name) AS c "
		    "WHERE lower(c.name) = '_rowid_') FROM pragma_table_list AS l WHERE "
		    "schema = 'main' AND lower(name) = lower(");
	pr_adopt_sqlite_put_literal(&sql, table);
	pr_buf_puts(&sql, ")");
	if (sql.failed)
		return pr_err_nomem(err);
	status = pr_adopt_sqlite_query(adopt, sql.data, DOING, take_name, &named, err);
	return status < 0 ? status : check_kind(&named, table, err);
}

static void put_digest(const char *table, struct pr_buf *out)
{
	uint64_t hash = 14695981039346656037u;

	for (; *table; table++)
		hash = (hash ^ (unsigned char)tolower((unsigned char)*table)) * 1099511628211u;
	pr_buf_printf(out, "%012llx", (unsigned long long)(hash >> 16));
}

/* The only target: both triggers and the view exist, or none of them. */
static int read_target(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pr_adopt_target *target = pr_arena_alloc(&adopt->arena, sizeof(*target));
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	int64_t count = 0;
	int status;

	if (!target)
		return pr_err_nomem(err);
	pr_buf_printf(&sql,
		      "SELECT count(*) FROM sqlite_schema WHERE name IN ('" ADOPT_SQLITE_INSERT
		      "%s', '" ADOPT_SQLITE_REOPEN "%s')",
		      adopt->function, adopt->function);
	if (sql.failed)
		return pr_err_nomem(err);
	status = pr_adopt_sqlite_number(adopt, sql.data, DOING, &count, err);
	*target = (struct pr_adopt_target){ .name = adopt->name,
					    .schema = adopt->schema,
					    .digest = adopt->function,
					    .has_rows = true,
					    .exists = count > 0,
					    .enabled = (int)count };
	adopt->targets = target;
	adopt->target_count = 1;
	return status;
}

/* The function's name is a digest of the table's, for the names of triggers. */
int pr_adopt_sqlite_read_layout(struct pr_adopt *adopt, const char *table, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf name = { 0 }, digest = { 0 };
	int status = find_table(adopt, table, err);

	if (status < 0)
		return status;
	pr_adopt_put_ident(&name, adopt->table);
	put_digest(adopt->table, &digest);
	adopt->schema = "main";
	adopt->own = "";
	adopt->name = pr_arena_strdup(&adopt->arena, pr_buf_text(&name));
	adopt->function = pr_arena_strdup(&adopt->arena, pr_buf_text(&digest));
	if (!adopt->name || !adopt->function)
		return pr_err_nomem(err);
	status = read_columns(adopt, err);
	return status < 0 ? status : read_target(adopt, err);
}

struct sampling {
	pr_adopt_value_fn fn;
	void *context;
};

static void take_sample(void *context, sqlite3_stmt *row)
{
	struct sampling *sampling = context;
	const char *text = (const char *)sqlite3_column_text(row, 0);

	if (text)
		sampling->fn(sampling->context, text, (size_t)sqlite3_column_bytes(row, 0));
}

int pr_adopt_sqlite_sample_values(struct pr_adopt *adopt, const char *column, bool distinct,
				  pr_adopt_value_fn fn, void *context, struct pr_err *err)
{
	struct sampling sampling = { fn, context };
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };

	pr_buf_printf(&sql, "SELECT %sv FROM (SELECT ", distinct ? "DISTINCT " : "");
	pr_adopt_put_ident(&sql, column);
	pr_buf_printf(&sql, " AS v FROM %s LIMIT 10000) WHERE v IS NOT NULL LIMIT 200",
		      adopt->name);
	if (sql.failed)
		return pr_err_nomem(err);
	return pr_adopt_sqlite_query(adopt, sql.data, "reading samples", take_sample, &sampling,
				     err);
}
