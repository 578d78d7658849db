/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of statements: names, patterns and rules in it.
 *
 * 1. User input is a literal quoted by libpq, or a parameter.
 * 2. Inserted text is never searched for further {names}.
 */
#include "store/pgsql/pgsql.h"

#include <string.h>

const char *pr_pgsql_pattern(const char *pattern, struct pr_buf *out)
{
	if (!pattern)
		return NULL;
	for (; *pattern; pattern++) {
		if (*pattern == '%' || *pattern == '_' || *pattern == '\\')
			pr_buf_putc(out, '\\');
		pr_buf_putc(out, *pattern == '*' ? '%' : *pattern);
	}
	return pr_buf_text(out);
}

const char *pr_pgsql_condition(const char *status)
{
	static const struct {
		const char *status;
		const char *condition;
	} kinds[] = {
		{ "pending", "status = 'pending' AND " },
		{ "failed", "status = 'pending' AND attempts > 0 AND " },
		{ "processing", "status = 'processing' AND " },
		{ "active", "status = 'active' AND " },
		{ "delivered", "status = 'delivered' AND " },
		{ "completed", "status = 'completed' AND " },
		{ "dead", "status = 'dead' AND " },
	};

	for (size_t i = 0; status && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].status, status) == 0)
			return kinds[i].condition;
	}
	return "";
}

static void put_literal(void *context, const char *text, bool pattern, struct pr_buf *out)
{
	const struct pgsql_store *store = context;
	PR_CLEANUP_BUF struct pr_buf like = { 0 };
	char *quoted;

	if (pattern)
		text = pr_pgsql_pattern(text, &like);
	quoted = like.failed ? NULL : PQescapeLiteral(store->conn, text, strlen(text));
	if (quoted)
		pr_buf_puts(out, quoted);
	else
		out->failed = true;
	PQfreemem(quoted);
}

static void put_rules(struct pgsql_store *store, const struct pr_table *table, struct pr_buf *out)
{
	if (store->rules.count == 0)
		return;
	pr_buf_puts(out, "AND ");
	pr_rules_sql(&store->rules, table, "LIKE", put_literal, store, out);
}

/* Puts in what the {name} at the beginning of sql stands for; its length, 0 for none. */
static size_t put_table_word(struct pgsql_store *store, const struct pr_table *table,
			     const char *sql, struct pr_buf *out)
{
	if (strncmp(sql, "{schema}", 8) == 0) {
		pr_buf_puts(out, store->schema);
		return 8;
	}
	if (strncmp(sql, "{rules}", 7) == 0) {
		put_rules(store, table, out);
		return 7;
	}
	return 0;
}

char *pr_pgsql_sql(struct pgsql_store *store, const struct pr_table *table, const char *sql)
{
	PR_CLEANUP_BUF struct pr_buf filled = { 0 };
	struct pr_buf whole = { 0 };
	const char *at;

	if (table)
		pr_table_sql(table, sql, &filled);
	else
		pr_buf_puts(&filled, sql);
	sql = pr_buf_text(&filled);
	/* Last of all, all at once: nothing in a name or a rule is taken for another {name}. */
	while ((at = strchr(sql, '{'))) {
		size_t len;

		pr_buf_append(&whole, sql, (size_t)(at - sql));
		len = put_table_word(store, table, at, &whole);
		if (len == 0)
			pr_buf_putc(&whole, '{');
		sql = at + (len ? len : 1);
	}
	pr_buf_puts(&whole, sql);
	if (filled.failed || whole.failed) {
		pr_buf_release(&whole);
		return NULL;
	}
	return whole.data;
}
