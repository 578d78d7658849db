/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the objects that the schema should have, read from the very migrations that create it:
 * so a new migration needs no second list. Only statements that begin a line count.
 */
#include "store/pgsql/doctor.h"
#include "store/schema.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE 64

/* The next statement that begins with the words, at or after sql; its end is its semicolon. */
static const char *find_statement(const char *sql, const char *words, size_t *ret_len)
{
	const char *at = sql;

	while ((at = strstr(at, words))) {
		const char *end = strchr(at, ';');

		if (end && (at == sql || at[-1] == '\n')) {
			*ret_len = (size_t)(end - at);
			return at;
		}
		at += strlen(words);
	}
	return NULL;
}

static void copy_name(const char *from, char out[NAME_SIZE])
{
	size_t len = strcspn(from, " \n\t(;");

	if (len >= NAME_SIZE)
		len = NAME_SIZE - 1;
	memcpy(out, from, len);
	out[len] = '\0';
}

static bool depends_on_lease(const char *name)
{
	struct pgsql_kind_index index;

	for (size_t i = 0; pr_pgsql_kind_index(i, &index); i++) {
		if (strcmp(index.name, name) == 0)
			return true;
	}
	return false;
}

/* Without {schema}: as the check compares it. */
static void put_definition(struct pr_buf *out, const char *text, size_t len)
{
	while (len > 0) {
		const char *at = memmem(text, len, "{schema}", 8);
		size_t plain = at ? (size_t)(at - text) : len;

		pr_buf_append(out, text, plain);
		if (!at)
			break;
		text = at + 8;
		len -= plain + 8;
	}
}

/* out ends with the text before the rows, or with a row. */
static void begin_row(struct pr_buf *out, const char *name)
{
	bool first = out->len == 0 || out->data[out->len - 1] != ')';

	pr_buf_printf(out, "%s('%s', ", first ? "" : ", ", name);
}

/* Was the index dropped by this migration or a later one? */
static bool is_dropped(const struct pr_migration *migration, const char *name)
{
	char words[NAME_SIZE + 40];
	size_t len;

	snprintf(words, sizeof(words), "DROP INDEX {schema}%s", name);
	for (; migration->version; migration++) {
		if (find_statement(migration->sql, words, &len))
			return true;
	}
	return false;
}

static void put_created(const struct pr_migration *migration, const char *words, struct pr_buf *out)
{
	const char *at = migration->sql;
	size_t len;

	for (; (at = find_statement(at, words, &len)); at += len) {
		char name[NAME_SIZE];

		copy_name(at + strlen(words), name);
		if (depends_on_lease(name) || is_dropped(migration + 1, name))
			continue;
		begin_row(out, name);
		pr_buf_puts(out, "$q$");
		put_definition(out, at, len);
		pr_buf_puts(out, "$q$, NULL)");
	}
}

void pr_pgsql_put_indexes(struct pr_buf *out)
{
	struct pgsql_kind_index index;

	for (size_t i = 0; pr_pgsql_kind_index(i, &index); i++) {
		begin_row(out, index.name);
		pr_buf_printf(out, "$q$CREATE INDEX %s", index.name);
		put_definition(out, index.definition, strlen(index.definition));
		pr_buf_printf(out, "$q$, '%s')", index.kind == PR_LEASE_LANE ? "lane" : "row");
	}
	for (const struct pr_migration *migration = pr_schema_pgsql; migration->version;
	     migration++) {
		put_created(migration, "CREATE INDEX ", out);
		put_created(migration, "CREATE UNIQUE INDEX ", out);
	}
}

void pr_pgsql_put_triggers(struct pr_buf *out)
{
	static const char words[] = "CREATE TRIGGER ";

	for (const struct pr_migration *migration = pr_schema_pgsql; migration->version;
	     migration++) {
		const char *at = migration->sql;
		size_t len;

		for (; (at = find_statement(at, words, &len)); at += len) {
			const char *on = memmem(at, len, " ON {schema}", 12);
			char name[NAME_SIZE], relation[NAME_SIZE];

			if (!on)
				continue;
			copy_name(at + strlen(words), name);
			copy_name(on + 12, relation);
			begin_row(out, name);
			pr_buf_printf(out, "'%s', $q$%.*s$q$)", relation, (int)len, at);
		}
	}
}
