/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an adoption: its mapping, so that all later steps use the same one. */
#include "adopt/sqlite/sqlite.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define DOING "reading the state of the adoption"

int pr_adopt_run(struct pr_adopt *adopt, const char *sql, const char *doing, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = pr_pgsql_query(adopt_store(adopt), sql, &params, doing,
							    err);

	return result ? POSTROOM_OK : err->status;
}

static PGresult *query_state(struct pr_adopt *adopt, const char *format,
			     struct pgsql_params *params, const char *doing, struct pr_err *err)
{
	char *sql = pr_pgsql_sql(adopt_store(adopt), &pr_table_outbox, format);
	PGresult *result = NULL;

	if (sql)
		result = pr_pgsql_query(adopt_store(adopt), sql, params, doing, err);
	else
		pr_err_nomem(err);
	free(sql);
	return result;
}

static int state_exists(struct pr_adopt *adopt, bool *ret, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	char name[sizeof(adopt_store(adopt)->schema) + 20];
	PR_CLEANUP_RESULT PGresult *result = NULL;

	snprintf(name, sizeof(name), "%spostroom_adopted", adopt_store(adopt)->schema);
	pr_pgsql_text(&params, name);
	result = pr_pgsql_query(adopt_store(adopt), "SELECT to_regclass($1::text) IS NOT NULL",
				&params, DOING, err);
	if (!result)
		return err->status;
	*ret = *PQgetvalue(result, 0, 0) == 't';
	return POSTROOM_OK;
}

static const char *copy_value(struct pr_adopt *adopt, const PGresult *result, int row, int column)
{
	if (PQgetisnull(result, row, column))
		return NULL;
	return pr_arena_strdup(&adopt->arena, PQgetvalue(result, row, column));
}

/* An expression is never read from the table: NULL stands for that of the preset. */
static int load_part(struct pr_adopt *adopt, enum pr_adopt_part part, const char *text,
		     struct pr_err *err)
{
	const struct pr_adopt_preset *preset = adopt->preset
						       ? pr_adopt_find_preset(adopt, adopt->preset)
						       : NULL;

	adopt->parts[part] = text;
	if (text || (preset && pr_adopt_use_preset(adopt, preset, part)))
		return POSTROOM_OK;
	return pr_err_set(
		err, POSTROOM_INVALID,
		"adopt: the record of %s in postroom_adopted needs the preset \"%s\", which "
		"this version does not have; use the version that began the adoption",
		adopt->name, adopt->preset ? adopt->preset : "");
}

int pr_adopt_load_state(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;
	bool exists = false;
	int status;

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_load_state(adopt, err);
	status = state_exists(adopt, &exists, err);
	if (status < 0 || !exists)
		return status;
	pr_pgsql_text(&params, adopt->name);
	result = query_state(
		adopt,
		"SELECT a.preset, a.time_zone, a.moved, a.adopted_at::text, m.key, m.value "
		"FROM {schema}postroom_adopted AS a "
		"CROSS JOIN LATERAL jsonb_each_text(a.mapping) AS m "
		"WHERE a.table_name = $1",
		&params, DOING, err);
	if (!result)
		return err->status;
	for (int i = 0; i < PQntuples(result); i++) {
		adopt->adopted = true;
		adopt->preset = copy_value(adopt, result, i, 0);
		adopt->zone = copy_value(adopt, result, i, 1);
		adopt->moved = strtoll(PQgetvalue(result, i, 2), NULL, 10);
		adopt->since = copy_value(adopt, result, i, 3);
		for (enum pr_adopt_part part = 0; part < PR_ADOPT_PARTS; part++) {
			if (strcmp(pr_adopt_part_names[part], PQgetvalue(result, i, 4)) == 0)
				status = load_part(adopt, part, copy_value(adopt, result, i, 5),
						   err);
			if (status < 0)
				return status;
		}
	}
	return POSTROOM_OK;
}

void pr_adopt_put_mapping(const struct pr_adopt *adopt, struct pr_buf *out)
{
	size_t start = out->len;

	for (size_t part = 0; part < PR_ADOPT_PARTS; part++) {
		if (!adopt->parts[part])
			continue;
		pr_buf_puts(out, out->len == start ? "{" : ", ");
		pr_json_put_string(out, pr_adopt_part_names[part]);
		pr_buf_puts(out, ": ");
		if (adopt->expression[part])
			pr_buf_puts(out, "null");
		else
			pr_json_put_string(out, adopt->parts[part]);
	}
	pr_buf_putc(out, '}');
}

int pr_adopt_save_state(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf mapping = { 0 };
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_adopt_put_mapping(adopt, &mapping);
	if (mapping.failed)
		return pr_err_nomem(err);
	pr_pgsql_text(&params, adopt->name);
	pr_pgsql_text(&params, adopt->preset);
	pr_pgsql_text(&params, adopt->zone);
	pr_pgsql_text(&params, mapping.data);
	result = query_state(adopt,
			     "INSERT INTO {schema}postroom_adopted (table_name, preset, time_zone, "
			     "mapping) VALUES ($1, $2, $3, $4::jsonb) ON CONFLICT DO NOTHING",
			     &params, "recording the adoption", err);
	return result ? POSTROOM_OK : err->status;
}

int pr_adopt_drop_state(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_pgsql_text(&params, adopt->name);
	result = query_state(adopt,
			     "WITH rejects AS (DELETE FROM {schema}postroom_adopt_rejects "
			     "WHERE table_name = $1) "
			     "DELETE FROM {schema}postroom_adopted WHERE table_name = $1",
			     &params, "removing the record of the adoption", err);
	return result ? POSTROOM_OK : err->status;
}

/* The owner of postroom_outbox, superusers and the current role are trusted. */
static const char foreign_objects[] =
	"WITH home AS (SELECT relnamespace AS schema, relowner AS owner FROM pg_class "
	"WHERE oid = '{schema}postroom_outbox'::regclass), "
	"found AS (SELECT c.oid::regclass::text AS name, c.relowner AS owner, c.relkind = 'r' AS "
	"usable "
	"FROM pg_class c JOIN home ON home.schema = c.relnamespace "
	"WHERE c.relname IN ('postroom_adopted', 'postroom_adopt_rejects') "
	"UNION ALL SELECT p.oid::regprocedure::text, p.proowner, true FROM pg_proc p "
	"WHERE p.oid IN (to_regproc($1), to_regproc($1 || '_reopened'))) "
	"SELECT name, pg_get_userbyid(owner) FROM found WHERE NOT usable "
	"OR (owner <> (SELECT owner FROM home) AND NOT EXISTS (SELECT FROM pg_roles r "
	"WHERE r.oid = found.owner AND (r.rolsuper OR r.rolname = current_user))) LIMIT 1";

int pr_adopt_check_owners(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (adopt->store->ops->embedded)
		return POSTROOM_OK;
	pr_pgsql_text(&params, adopt->function);
	result = query_state(adopt, foreign_objects, &params, "checking who owns the objects", err);
	if (!result)
		return err->status;
	if (PQntuples(result) == 0)
		return POSTROOM_OK;
	return pr_err_set(
		err, POSTROOM_INVALID,
		"adopt: %s belongs to %s, which owns neither postroom_outbox nor this "
		"session, so its content cannot be trusted; check it, then drop it or give "
		"it to the owner of postroom_outbox",
		PQgetvalue(result, 0, 0), PQgetvalue(result, 0, 1));
}

int pr_adopt_lock(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_pgsql_text(&params, adopt->function);
	result = pr_pgsql_query(adopt_store(adopt),
				"SELECT pg_try_advisory_lock(hashtextextended($1, 0))", &params,
				"locking the adoption", err);
	if (!result)
		return err->status;
	if (*PQgetvalue(result, 0, 0) != 't')
		return pr_err_set(err, POSTROOM_BUSY,
				  "adopt: another process is adopting %s; wait for its end and run "
				  "the command again",
				  adopt->name);
	return POSTROOM_OK;
}
