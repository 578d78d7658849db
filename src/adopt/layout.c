/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a foreign table, by catalog queries only. */
#include "adopt/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

#define DOING "reading the layout of the table"

/* As it was typed, with the schema or without; else as SQL would read it. */
static const char find_table[] =
	"WITH named AS (SELECT c.oid, c.relname, n.nspname, c.relkind, c.relpersistence, "
	"c.relispartition, pg_table_is_visible(c.oid) AS visible "
	"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
	"WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')), "
	"found AS (SELECT coalesce("
	"(SELECT oid FROM named WHERE relname = $1::text AND visible), "
	"(SELECT oid FROM named WHERE nspname || '.' || relname = $1::text LIMIT 1), "
	"CASE WHEN $1::text ~ '^(\"([^\"]|\"\")+\"|[[:alpha:]_][[:alnum:]_$]*)"
	"([.](\"([^\"]|\"\")+\"|[[:alpha:]_][[:alnum:]_$]*))?$' "
	"THEN to_regclass($1::text)::oid END) AS oid) "
	"SELECT named.oid, nspname, relname, relkind, relpersistence, relispartition, "
	"format('%I.%I', nspname, relname), "
	"EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = named.oid) AND relkind = 'r', "
	"left(md5(format('%I.%I', nspname, relname)), 12) "
	"FROM named JOIN found ON found.oid = named.oid";

/* A domain may be that of another domain. */
#define BASE_TYPE                                                                                  \
	"(WITH RECURSIVE base(oid) AS (SELECT a.atttypid UNION ALL SELECT d.typbasetype "          \
	"FROM base JOIN pg_type d ON d.oid = base.oid WHERE d.typtype = 'd') "                     \
	"SELECT base.oid FROM base JOIN pg_type d ON d.oid = base.oid WHERE d.typtype <> 'd')"

static const char find_columns[] =
	"SELECT a.attname, CASE WHEN b.typtype = 'e' THEN 'enum' "
	"WHEN b.typname IN ('uuid', 'bool', 'json', 'jsonb', 'bytea', 'timestamptz', 'timestamp') "
	"THEN b.typname::text "
	"WHEN b.typname IN ('text', 'varchar', 'bpchar', 'citext') THEN 'text' "
	"WHEN b.typname IN ('int2', 'int4', 'int8') THEN 'int' ELSE 'other' END, "
	"coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attgenerated <> '', a.attnotnull "
	"FROM pg_attribute a JOIN pg_type b ON b.oid = " BASE_TYPE " "
	"LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
	"WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/* The primary key, or else the shortest unique index without NULLs. */
static const char find_key[] =
	"SELECT a.attname, (SELECT format('OPERATOR(%I.%s)', s.nspname, p.oprname) FROM pg_opclass c "
	"JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype "
	"AND m.amoprighttype = c.opcintype AND m.amopstrategy = 3 "
	"JOIN pg_operator p ON p.oid = m.amopopr JOIN pg_namespace s ON s.oid = p.oprnamespace "
	"WHERE c.oid = k.class) FROM (SELECT i.indrelid, i.indkey, i.indclass, i.indnkeyatts "
	"FROM pg_index i "
	"WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indimmediate "
	"AND i.indpred IS NULL AND i.indexprs IS NULL AND NOT EXISTS (SELECT FROM pg_attribute a "
	"WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) AND NOT a.attnotnull) "
	"ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1) AS best "
	"CROSS JOIN LATERAL unnest(best.indkey, best.indclass) WITH ORDINALITY "
	"AS k(attnum, class, place) "
	"JOIN pg_attribute a ON a.attrelid = best.indrelid AND a.attnum = k.attnum "
	"WHERE k.place <= best.indnkeyatts "
	"ORDER BY k.place";

static const char find_targets[] =
	"SELECT format('%I.%I', n.nspname, c.relname), c.relkind = 'r', "
	"count(g.oid) > 0, coalesce(bool_and(g.tgenabled IN ('O', 'A') AND g.tgfoid::regproc::oid = "
	"ANY (ARRAY[to_regproc($2), to_regproc($2 || '_reopened')]::oid[])), false), "
	"count(g.oid), quote_ident(n.nspname), left(md5(format('%I.%I', n.nspname, c.relname)), 12) "
	"FROM (SELECT $1::oid AS relid UNION SELECT relid FROM pg_partition_tree($1::oid::regclass)) "
	"AS tree JOIN pg_class c ON c.oid = tree.relid JOIN pg_namespace n ON n.oid = c.relnamespace "
	"LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgname IN ("
	"'" ADOPT_INSERT_TRIGGER "', '" ADOPT_REOPEN_TRIGGER "') "
	"GROUP BY n.nspname, c.relname, c.relkind, tree.relid ORDER BY tree.relid = $1::oid DESC, 1";

int pr_adopt_find_column(const struct pr_adopt *adopt, const char *name)
{
	for (size_t i = 0; i < adopt->column_count; i++) {
		if (strcmp(adopt->columns[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

static enum pr_adopt_type read_type(const char *word)
{
	static const char *const words[] = {
		[PR_ADOPT_TEXT] = "text",	[PR_ADOPT_UUID] = "uuid",
		[PR_ADOPT_INT] = "int",		[PR_ADOPT_BOOL] = "bool",
		[PR_ADOPT_ENUM] = "enum",	[PR_ADOPT_JSON] = "json",
		[PR_ADOPT_JSONB] = "jsonb",	[PR_ADOPT_BYTES] = "bytea",
		[PR_ADOPT_TIMESTAMPTZ] = "timestamptz", [PR_ADOPT_TIMESTAMP] = "timestamp",
	};

	for (size_t i = 0; i < PR_ADOPT_OTHER; i++) {
		if (strcmp(words[i], word) == 0)
			return (enum pr_adopt_type)i;
	}
	return PR_ADOPT_OTHER;
}

static PGresult *ask(struct pr_adopt *adopt, const char *sql, const char *parameter,
		     struct pr_err *err)
{
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, parameter);
	return pr_pgsql_query(adopt_store(adopt), sql, &params, DOING, err);
}

static int read_columns(struct pr_adopt *adopt, const char *oid, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = ask(adopt, find_columns, oid, err);
	size_t count;

	if (!result)
		return err->status;
	count = (size_t)PQntuples(result);
	adopt->columns = pr_arena_alloc(&adopt->arena, (count + 1) * sizeof(*adopt->columns));
	if (!adopt->columns)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		struct pr_adopt_column *column = &adopt->columns[i];

		column->name = pr_arena_strdup(&adopt->arena, PQgetvalue(result, (int)i, 0));
		column->type = read_type(PQgetvalue(result, (int)i, 1));
		column->fallback = pr_arena_strdup(&adopt->arena, PQgetvalue(result, (int)i, 2));
		column->generated = *PQgetvalue(result, (int)i, 3) == 't';
		column->not_null = *PQgetvalue(result, (int)i, 4) == 't';
		if (!column->name || !column->fallback)
			return pr_err_nomem(err);
	}
	adopt->column_count = count;
	return POSTROOM_OK;
}

static int read_key(struct pr_adopt *adopt, const char *oid, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = ask(adopt, find_key, oid, err);

	if (!result)
		return err->status;
	if (PQntuples(result) == 0 || PQntuples(result) > PR_ADOPT_KEY_MAX)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s has no primary key (or one of more than %d columns), so "
				  "its rows cannot be identified; add a primary key first",
				  adopt->name, PR_ADOPT_KEY_MAX);
	for (int i = 0; i < PQntuples(result); i++) {
		int found = pr_adopt_find_column(adopt, PQgetvalue(result, i, 0));

		if (found < 0)
			continue;
		adopt->equals[adopt->key_count] =
			pr_arena_strdup(&adopt->arena, PQgetvalue(result, i, 1));
		if (!adopt->equals[adopt->key_count])
			return pr_err_nomem(err);
		adopt->key[adopt->key_count++] = (size_t)found;
	}
	return POSTROOM_OK;
}

static int read_targets(struct pr_adopt *adopt, const char *oid, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	size_t count;

	pr_pgsql_text(&params, oid);
	pr_pgsql_text(&params, adopt->function);
	result = pr_pgsql_query(adopt_store(adopt), find_targets, &params, DOING, err);
	if (!result)
		return err->status;
	count = (size_t)PQntuples(result);
	adopt->targets = pr_arena_alloc(&adopt->arena, (count + 1) * sizeof(*adopt->targets));
	if (!adopt->targets)
		return pr_err_nomem(err);
	for (size_t i = 0; i < count; i++) {
		struct pr_adopt_target *target = &adopt->targets[i];

		target->name = pr_arena_strdup(&adopt->arena, PQgetvalue(result, (int)i, 0));
		target->has_rows = *PQgetvalue(result, (int)i, 1) == 't';
		target->exists = *PQgetvalue(result, (int)i, 2) == 't';
		target->enabled = *PQgetvalue(result, (int)i, 3) == 't'
					  ? (int)strtol(PQgetvalue(result, (int)i, 4), NULL, 10)
					  : 0;
		target->schema = pr_arena_strdup(&adopt->arena, PQgetvalue(result, (int)i, 5));
		target->digest = pr_arena_strdup(&adopt->arena, PQgetvalue(result, (int)i, 6));
		if (!target->name || !target->schema || !target->digest)
			return pr_err_nomem(err);
	}
	adopt->target_count = count;
	return POSTROOM_OK;
}

static int check_kind(const PGresult *result, const char *table, struct pr_err *err)
{
	char kind = *PQgetvalue(result, 0, 3);

	if (kind != 'r' && kind != 'p')
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a view or a foreign table, which cannot have the "
				  "triggers of a mirror; name the table behind it",
				  table);
	if (*PQgetvalue(result, 0, 4) == 't')
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a temporary table of one session; name a permanent "
				  "table",
				  table);
	if (*PQgetvalue(result, 0, 5) == 't')
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a partition; name the partitioned table that it "
				  "belongs to",
				  table);
	if (*PQgetvalue(result, 0, 7) == 't')
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: other tables inherit from %s, which is not supported; "
				  "adopt each of them after NO INHERIT",
				  table);
	if (strncmp(PQgetvalue(result, 0, 2), "postroom_", 9) == 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is a table of Postroom; name the table that your "
				  "application writes",
				  table);
	return POSTROOM_OK;
}

/* Names that differ in case, or in another schema. */
static int refuse_unknown(struct pr_adopt *adopt, const char *table, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = ask(
		adopt,
		"SELECT format('%s.%s', n.nspname, c.relname) FROM pg_class c "
		"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') "
		"AND lower($1::text) IN (lower(c.relname), lower(n.nspname || '.' || c.relname)) "
		"ORDER BY 1 LIMIT 1",
		table, err);

	if (!result)
		return err->status;
	if (PQntuples(result) > 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: there is no table %s in %s; did you mean \"%s\"?", table,
				  adopt_store(adopt)->shown, PQgetvalue(result, 0, 0));
	return pr_err_set(err, POSTROOM_INVALID,
			  "adopt: there is no table %s in %s; check the name, and put the schema before it "
			  "if it is not in the search path",
			  table, adopt_store(adopt)->shown);
}

int pr_adopt_read_layout(struct pr_adopt *adopt, const char *table, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = ask(adopt, find_table, table, err);
	int status;

	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return refuse_unknown(adopt, table, err);
	status = check_kind(result, table, err);
	if (status < 0)
		return status;
	adopt->own = adopt_store(adopt)->schema;
	adopt->schema = pr_arena_strdup(&adopt->arena, PQgetvalue(result, 0, 1));
	adopt->table = pr_arena_strdup(&adopt->arena, PQgetvalue(result, 0, 2));
	adopt->name = pr_arena_strdup(&adopt->arena, PQgetvalue(result, 0, 6));
	adopt->function = pr_arena_printf(&adopt->arena, "%spostroom_adopt_%s",
					  adopt_store(adopt)->schema, PQgetvalue(result, 0, 8));
	if (!adopt->schema || !adopt->table || !adopt->name || !adopt->function)
		return pr_err_nomem(err);
	status = read_columns(adopt, PQgetvalue(result, 0, 0), err);
	if (status >= 0)
		status = read_key(adopt, PQgetvalue(result, 0, 0), err);
	return status < 0 ? status : read_targets(adopt, PQgetvalue(result, 0, 0), err);
}

static int each_value(const PGresult *result, pr_adopt_value_fn fn, void *context)
{
	for (int i = 0; i < PQntuples(result); i++)
		fn(context, PQgetvalue(result, i, 0), (size_t)PQgetlength(result, i, 0));
	return POSTROOM_OK;
}

int pr_adopt_sample_values(struct pr_adopt *adopt, const char *column, bool distinct,
			   pr_adopt_value_fn fn, void *context, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_sample_values(adopt, column, distinct, fn, context, err);
	pr_buf_printf(&sql, "SELECT %svalue FROM (SELECT ", distinct ? "DISTINCT " : "");
	pr_adopt_put_ident(&sql, column);
	pr_buf_printf(&sql, "::text AS value FROM %s LIMIT 10000) AS t WHERE value IS NOT NULL LIMIT 200",
		      adopt->name);
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, "reading samples", err);
	return result ? each_value(result, fn, context) : err->status;
}

int pr_adopt_read_labels(struct pr_adopt *adopt, const char *column, pr_adopt_value_fn fn,
			 void *context, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	if (adopt->store->ops->embedded)
		return POSTROOM_OK;
	pr_pgsql_text(&params, adopt->name);
	pr_pgsql_text(&params, column);
	result = pr_pgsql_query(adopt_store(adopt),
				"SELECT e.enumlabel FROM pg_attribute a "
				"JOIN pg_enum e ON e.enumtypid = " BASE_TYPE " "
				"WHERE a.attrelid = $1::regclass AND a.attname = $2 "
				"ORDER BY e.enumsortorder",
				&params, "reading the values of the status", err);
	return result ? each_value(result, fn, context) : err->status;
}
