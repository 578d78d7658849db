/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an adoption, its rejected rows, and privileges that producers lack. */
#include "adopt/sqlite/sqlite.h"

#include <stdlib.h>
#include <string.h>

#define DOING "reading the state of the adoption"

static PGresult *query_named(struct pr_adopt *adopt, struct pr_buf *sql, struct pr_err *err)
{
	struct pgsql_params params = { 0 };

	if (sql->failed) {
		pr_err_nomem(err);
		return NULL;
	}
	pr_pgsql_text(&params, adopt->name);
	return pr_pgsql_query(adopt_store(adopt), sql->data, &params, DOING, err);
}

static int64_t number_at(const PGresult *result, int column)
{
	return strtoll(PQgetvalue(result, 0, column), NULL, 10);
}

static int count_rows(struct pr_adopt *adopt, struct pr_adopt_status *ret, struct pr_err *err)
{
	const char *schema = adopt_store(adopt)->schema;
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_buf_puts(&sql, "SELECT count(*) FILTER (WHERE open), count(*) FILTER (WHERE NOT open AND "
			  "NOT done), ");
	pr_buf_printf(&sql,
		      "(SELECT count(*) FROM %spostroom_adopt_rejects WHERE table_name = $1::text), ",
		      schema);
	pr_buf_puts(&sql, "count(*) FILTER (WHERE m.status = 'pending'), "
			  "count(*) FILTER (WHERE m.status = 'processing'), "
			  "count(*) FILTER (WHERE m.status = 'delivered'), "
			  "count(*) FILTER (WHERE m.status = 'dead') FROM (SELECT ");
	pr_adopt_put_id(adopt, "t", &sql);
	pr_buf_puts(&sql, " AS id, ");
	if (pr_adopt_has_marker(adopt))
		pr_adopt_put_open(adopt, "t", &sql);
	else
		pr_buf_puts(&sql, adopt->done == PR_ADOPT_DELETE ? "true" : "false");
	pr_buf_puts(&sql, " AS open, ");
	pr_adopt_put_done(adopt, "t", &sql);
	pr_buf_printf(&sql, "%s AS done FROM %s AS t WHERE ",
		      adopt->done == PR_ADOPT_NONE ? " OR true" : "", adopt->name);
	pr_adopt_put_only(adopt, "t", &sql);
	pr_buf_printf(&sql, ") AS t LEFT JOIN %spostroom_messages AS m ON m.id = t.id", schema);
	result = query_named(adopt, &sql, err);
	if (!result)
		return err->status;
	ret->open = number_at(result, 0);
	ret->other = number_at(result, 1);
	ret->rejected = number_at(result, 2);
	ret->pending = number_at(result, 3);
	ret->processing = number_at(result, 4);
	ret->delivered = number_at(result, 5);
	ret->dead = number_at(result, 6);
	return POSTROOM_OK;
}

int pr_adopt_status(struct pr_adopt *adopt, struct pr_adopt_status *ret, struct pr_err *err)
{
	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_status(adopt, ret, err);
	*ret = (struct pr_adopt_status){ .targets = (int64_t)adopt->target_count };
	for (size_t i = 0; i < adopt->target_count; i++)
		ret->mirrored +=
			pr_adopt_is_mirrored(&adopt->targets[i], pr_adopt_has_marker(adopt));
	return count_rows(adopt, ret, err);
}

static int each_text(const PGresult *result, pr_adopt_text_fn fn, void *context)
{
	for (int i = 0; i < PQntuples(result); i++)
		fn(context, PQgetvalue(result, i, 0));
	return PQntuples(result);
}

int pr_adopt_rejects(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
		     struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_rejects(adopt, fn, context, err);
	pr_buf_printf(&sql,
		      "SELECT count(*) || ' rows, such as ' || min(row_key) || ': ' || reason "
		      "FROM %spostroom_adopt_rejects WHERE table_name = $1::text "
		      "GROUP BY reason ORDER BY count(*) DESC, reason LIMIT 10",
		      adopt_store(adopt)->schema);
	result = query_named(adopt, &sql, err);
	return result ? each_text(result, fn, context) : err->status;
}

int pr_adopt_sample(struct pr_adopt *adopt, int limit, pr_adopt_text_fn fn, void *context,
		    struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_sample(adopt, limit, fn, context, err);
	pr_buf_puts(&sql, "SELECT row_to_json(message) FROM (SELECT ");
	pr_adopt_put_values(adopt, "n", NULL, &sql);
	pr_buf_printf(&sql, " FROM (SELECT * FROM %s AS n WHERE ", adopt->name);
	pr_adopt_put_only(adopt, "n", &sql);
	/* ORDER BY refuses a constant, which the condition is if rows have no marker. */
	pr_buf_puts(&sql, " ORDER BY CASE WHEN ");
	pr_adopt_put_open(adopt, "n", &sql);
	pr_buf_printf(&sql, " THEN 0 ELSE 1 END LIMIT %d) AS n) AS message(", limit);
	pr_adopt_put_columns(adopt, &sql);
	pr_buf_puts(&sql, ")");
	if (sql.failed)
		return pr_err_nomem(err);
	result = pr_pgsql_query(adopt_store(adopt), sql.data, &params, "reading samples", err);
	return result ? each_text(result, fn, context) : err->status;
}

/* The privileges of put_one_row() in sql.c, for every role that may insert. */
static const char missing_grants[] =
	"WITH producer AS (SELECT oid, quote_ident(rolname) AS role FROM pg_roles "
	"WHERE NOT rolsuper AND rolname !~ '^pg_' "
	"AND EXISTS (SELECT FROM (SELECT $1::regclass AS relid UNION SELECT relid "
	"FROM pg_partition_tree($1::regclass)) AS tree "
	"WHERE has_any_column_privilege(pg_roles.oid, tree.relid, 'INSERT'))), "
	"wanted(ordinal, is_schema, relation, privilege, columns) AS (VALUES "
	"(1, true, $2::text, 'USAGE', NULL::text[]), "
	"(2, false, $2 || 'postroom_outbox', 'INSERT', $3::text[]), "
	"(3, false, $2 || 'postroom_outbox', 'SELECT', CASE WHEN $6::boolean THEN "
	"'{namespace,topic,dedupe_key,status,xmax}'::text[] END), "
	"(4, false, $2 || 'postroom_dedupe', 'SELECT', CASE WHEN $6::boolean THEN "
	"'{namespace,topic,dedupe_key,id,written}'::text[] END), "
	"(5, false, $2 || 'postroom_dedupe', 'INSERT', CASE WHEN $6::boolean THEN "
	"'{namespace,topic,dedupe_key,id}'::text[] END), "
	"(6, false, $2 || 'postroom_dedupe', 'UPDATE', CASE WHEN $6::boolean THEN "
	"'{id,written}'::text[] END), "
	"(7, false, $2 || 'postroom_adopt_rejects', 'INSERT', "
	"'{table_name,row_key,reason}'::text[]), "
	"(8, false, $1::text, 'SELECT', $4::text[]), "
	"(9, false, $1::text, CASE WHEN $5::text[] = '{}' THEN 'DELETE' ELSE 'UPDATE' END, "
	"$5::text[])) "
	"SELECT CASE WHEN is_schema THEN format('GRANT USAGE ON SCHEMA %s TO %s', "
	"rtrim(relation, '.'), role) WHEN columns = '{}' THEN format('GRANT %s ON %s TO %s', "
	"privilege, relation, role) ELSE format('GRANT %s (%s) ON %s TO %s', privilege, "
	"(SELECT string_agg(quote_ident(c), ', ') FROM unnest(columns) AS c), relation, role) END "
	"|| ';' FROM producer CROSS JOIN wanted WHERE CASE "
	"WHEN is_schema THEN NOT EXISTS (SELECT FROM pg_namespace AS s WHERE quote_ident(s.nspname) "
	"|| '.' = relation AND has_schema_privilege(producer.oid, s.oid, 'USAGE')) "
	"WHEN columns IS NULL THEN false "
	"WHEN to_regclass(relation) IS NULL THEN true "
	"WHEN columns = '{}' THEN NOT has_table_privilege(producer.oid, relation, privilege) "
	"ELSE EXISTS (SELECT FROM unnest(columns) AS c WHERE NOT has_column_privilege("
	"producer.oid, relation::regclass, c, privilege)) END "
	"UNION ALL SELECT format('GRANT SELECT ON SEQUENCE %spostroom_notify_until TO %s;', $2, role) "
	"FROM producer WHERE NOT has_sequence_privilege(producer.oid, "
	"$2 || 'postroom_notify_until', 'SELECT')";

/* A text[] of names, in PostgreSQL's notation. */
static void put_array_item(struct pr_buf *out, const char *name)
{
	pr_buf_puts(out, out->len > 1 ? ",\"" : "\"");
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			pr_buf_putc(out, '\\');
		pr_buf_putc(out, *name);
	}
	pr_buf_putc(out, '"');
}

/* The columns of an assignment list that pr_adopt_put_mark() writes. */
static void put_marked_columns(const struct pr_adopt *adopt, struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->column_count && pr_adopt_has_marker(adopt); i++) {
		const char *name = adopt->columns[i].name, *spec = adopt->parts[PR_ADOPT_DONE];
		size_t len = strlen(name);
		bool marker = strncmp(spec, name, len) == 0 &&
			      (!spec[len] || (spec[len] == ':' && adopt->done == PR_ADOPT_STATUS));
		bool also = adopt->parts[PR_ADOPT_DONE_AT] &&
			    strcmp(adopt->parts[PR_ADOPT_DONE_AT], name) == 0;

		if (marker || also)
			put_array_item(out, name);
	}
}

static void put_key_columns(const struct pr_adopt *adopt, struct pr_buf *out)
{
	for (size_t i = 0; i < adopt->key_count; i++)
		put_array_item(out, adopt->columns[adopt->key[i]].name);
}

int pr_adopt_missing_grants(struct pr_adopt *adopt, pr_adopt_text_fn fn, void *context,
			    struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf columns = { 0 }, key = { 0 }, marked = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (adopt->store->ops->embedded)
		return 0;
	pr_buf_putc(&columns, '{');
	pr_adopt_put_columns(adopt, &columns);
	pr_buf_putc(&columns, '}');
	pr_buf_putc(&key, '{');
	put_key_columns(adopt, &key);
	put_marked_columns(adopt, &key);
	pr_buf_putc(&key, '}');
	pr_buf_putc(&marked, '{');
	put_marked_columns(adopt, &marked);
	pr_buf_putc(&marked, '}');
	if (columns.failed || key.failed || marked.failed)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, adopt->name);
	pr_pgsql_text(&params, adopt_store(adopt)->schema);
	pr_pgsql_text(&params, columns.data);
	pr_pgsql_text(&params, key.data);
	/* Without a marker, rows are deleted, or not touched at all. */
	pr_pgsql_text(&params, adopt->done == PR_ADOPT_NONE ? NULL : marked.data);
	pr_pgsql_text(&params, adopt->parts[PR_ADOPT_DEDUPE] && *adopt->parts[PR_ADOPT_DEDUPE]
				       ? "true"
				       : "false");
	result = pr_pgsql_query(adopt_store(adopt), missing_grants, &params,
				"checking the privileges of producers", err);
	return result ? each_text(result, fn, context) : err->status;
}
