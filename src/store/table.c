/* SPDX-License-Identifier: Apache-2.0 */
#include "store/table.h"

#include <string.h>

const struct pr_table pr_table_outbox = {
	.name = "postroom_outbox",
	.box = "OUTBOX",
	.active = "processing",
	.done = "delivered",
	.done_at = "delivered_at",
	.columns = "seq, claims, attempts, created_at, id, namespace, topic, key, tenant_id, "
		   "dedupe_key, correlation_id, content_type",
	.scope_ns = "namespace",
	.scope_topic = "topic",
	.scope_tenant = "tenant_id",
	.lanes = true,
};

const struct pr_table pr_table_inbox = {
	.name = "postroom_inbox",
	.box = "INBOX",
	.active = "active",
	.done = "completed",
	.done_at = "processed_at",
	.columns =
		"seq, claims, attempts, created_at, id, namespace, coalesce(topic, handler_name), "
		"key, tenant_id, NULL, correlation_id, content_type",
	.scope_ns = "namespace",
	.scope_topic = "topic",
	.scope_tenant = "NULL",
};

static void put_rule(const struct pr_rule *rule, const struct pr_table *table, const char *like,
		     pr_literal_fn literal, void *context, struct pr_buf *out)
{
	if (rule->ns) {
		pr_buf_printf(out, "%s = ", table->scope_ns);
		literal(context, rule->ns, false, out);
	}
	if (rule->ns && rule->topic)
		pr_buf_puts(out, " AND ");
	if (rule->topic) {
		pr_buf_printf(out, "%s %s ", table->scope_topic, like);
		literal(context, rule->topic, true, out);
	}
	if (!rule->ns && !rule->topic)
		pr_buf_puts(out, "true");
}

void pr_rules_sql(const struct pr_rules *rules, const struct pr_table *table, const char *like,
		  pr_literal_fn literal, void *context, struct pr_buf *out)
{
	pr_buf_puts(out, "CASE");
	for (size_t i = 0; i < rules->count; i++) {
		pr_buf_puts(out, " WHEN ");
		put_rule(&rules->list[i], table, like, literal, context, out);
		pr_buf_puts(out, rules->list[i].mine ? " THEN true" : " THEN false");
	}
	pr_buf_puts(out, " ELSE false END ");
}

void pr_table_sql(const struct pr_table *table, const char *sql, struct pr_buf *out)
{
	const struct {
		const char *name;
		const char *value;
	} fields[] = {
		{ "{table}", table->name },
		{ "{active}", table->active },
		{ "{done}", table->done },
		{ "{done_at}", table->done_at },
		{ "{columns}", table->columns },
		{ "{scope_ns}", table->scope_ns },
		{ "{scope_topic}", table->scope_topic },
		{ "{scope_tenant}", table->scope_tenant },
	};

	while (*sql) {
		size_t i, plain = strcspn(sql, "{");

		pr_buf_append(out, sql, plain);
		sql += plain;
		for (i = 0; *sql && i < sizeof(fields) / sizeof(fields[0]); i++) {
			size_t len = strlen(fields[i].name);

			if (strncmp(sql, fields[i].name, len) == 0) {
				pr_buf_puts(out, fields[i].value);
				sql += len;
				break;
			}
		}
		if (*sql && i == sizeof(fields) / sizeof(fields[0]))
			pr_buf_putc(out, *sql++);
	}
}
