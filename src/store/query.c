/* SPDX-License-Identifier: Apache-2.0 */
#include "store/query.h"

#include "base/assert.h"

#include <string.h>

void pr_query_put(struct pr_query *query, const char *sql)
{
	pr_buf_puts(&query->sql, sql);
}

/* Appends sql, with the number of the value for each '@'. Equal values share a parameter. */
static void put_value(struct pr_query *query, const char *sql, struct pr_query_value value)
{
	size_t at = 0;

	while (at < query->count &&
	       (query->values[at].text != value.text || query->values[at].number != value.number))
		at++;
	if (at == PR_QUERY_VALUES) {
		query->sql.failed = true;
		return;
	}
	if (at == query->count)
		query->values[query->count++] = value;
	for (; *sql; sql++) {
		if (*sql == '@')
			pr_buf_printf(&query->sql, "%c%zu", query->mark, at + 1);
		else
			pr_buf_putc(&query->sql, *sql);
	}
}

void pr_query_add(struct pr_query *query, int64_t number)
{
	pr_assert(query->count < PR_QUERY_VALUES);
	query->values[query->count++] = (struct pr_query_value){ .number = number };
}

void pr_query_text(struct pr_query *query, const char *sql, const char *text)
{
	put_value(query, sql, (struct pr_query_value){ .text = text });
}

void pr_query_number(struct pr_query *query, const char *sql, int64_t number)
{
	put_value(query, sql, (struct pr_query_value){ .number = number });
}

static void put_text(struct pr_query *query, const char *sql, const char *text)
{
	if (!text || !sql)
		return;
	pr_query_put(query, " AND ");
	pr_query_text(query, sql, text);
}

static void put_number(struct pr_query *query, const char *sql, int64_t number)
{
	if (number == 0)
		return;
	pr_query_put(query, " AND ");
	pr_query_number(query, sql, number);
}

void pr_query_filter(struct pr_query *query, const postroom_filter *filter,
		     const struct pr_filter_words *words, const char *since)
{
	const char *topic = filter->topic;
	int64_t age_ms = filter->older_than_ms;

	if (topic && query->pattern.len == 0)
		words->pattern(topic, &query->pattern);
	put_text(query, words->ns, filter->ns);
	put_text(query, words->topic, topic ? pr_buf_text(&query->pattern) : NULL);
	put_text(query, words->tenant_id, filter->tenant_id);
	put_text(query, words->key, filter->key);
	put_text(query, words->handler, filter->handler);
	put_text(query, words->id, filter->id);
	put_text(query, words->error, filter->error);
	put_text(query, words->fingerprint, filter->fingerprint);
	put_text(query, words->sink, filter->sink);
	put_number(query, words->created_from, filter->created_from_us);
	put_number(query, words->created_to, filter->created_to_us);
	if (age_ms > 0) {
		pr_query_put(query, " AND ");
		pr_query_put(query, since);
		pr_query_number(query, words->older_than, words->age ? words->age(age_ms) : age_ms);
	}
	query->sql.failed |= query->pattern.failed;
}

void pr_query_release(struct pr_query *query)
{
	pr_buf_release(&query->sql);
	pr_buf_release(&query->pattern);
}

bool pr_filter_is(const postroom_filter *filter, const char *status)
{
	return filter->status && strcmp(filter->status, status) == 0;
}

const struct pr_table *pr_filter_table(const postroom_filter *filter)
{
	return filter->table == POSTROOM_INBOX ? &pr_table_inbox : &pr_table_outbox;
}
