/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries by operators (X1): list, count.
 *
 * 1. A page is found first, as numbers of rows, through the index of the state; only then are its
 *    rows read.
 * 2. A statement ends at the store's deadline, if it has one.
 */
#include "base/time.h"
#include "store/position.h"
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID " IN (@, replace(@, '-', ''), upper(@), upper(replace(@, '-', '')))"
/* SQLite's lower() knows ASCII letters only. */
#define ERROR "instr(lower(last_error), lower(@)) > 0"

/* The words that both tables share. */
#define COMMON_WORDS                                                                               \
	.key = "key = @", .error = ERROR,                                                          \
	.fingerprint = "coalesce(postroom_fingerprint(last_error), '') = @",                       \
	.created_from = "created_at >= @", .created_to = "created_at < @",                         \
	.older_than = " <= @", .pattern = pr_sqlite_pattern, .age = pr_sqlite_before

static const struct pr_filter_words outbox_words = {
	COMMON_WORDS,
	.sink = PR_SQLITE_OUTBOX_SINK " = @",
	.ns = "namespace = @",
	.topic = "topic GLOB @",
	.tenant_id = "tenant_id" UUID,
	.id = "id" UUID,
};

static const struct pr_filter_words inbox_words = {
	COMMON_WORDS,
	.sink = PR_SQLITE_INBOX_SINK " = @",
	.topic = "coalesce(topic, handler_name) GLOB @",
	.tenant_id = "tenant_id = @",
	.handler = "handler_name = @",
	.id = "id = @",
};

const struct pr_filter_words *pr_sqlite_words(const postroom_filter *filter)
{
	return filter->table == POSTROOM_INBOX ? &inbox_words : &outbox_words;
}

#define CHECK_EVERY 10000

static int is_past(void *context)
{
	const struct sqlite_store *store = context;

	return pr_mono_us() >= store->base.until_us;
}

sqlite3_stmt *pr_sqlite_prepare_query(struct sqlite_store *store, const struct pr_query *query,
				      struct pr_err *err)
{
	sqlite3_stmt *stmt = NULL;

	if (query->sql.failed) {
		pr_err_nomem(err);
		return NULL;
	}
	if (sqlite3_prepare_v2(store->db, pr_buf_text(&query->sql), -1, &stmt, NULL) != SQLITE_OK) {
		pr_sqlite_fail(store->db, store, "preparing a statement", err);
		return NULL;
	}
	for (size_t i = 0; i < query->count; i++) {
		if (query->values[i].text)
			pr_sqlite_bind(stmt, (int)i + 1, query->values[i].text);
		else
			sqlite3_bind_int64(stmt, (int)i + 1, query->values[i].number);
	}
	if (store->base.until_us)
		sqlite3_progress_handler(store->db, CHECK_EVERY, is_past, store);
	return stmt;
}

int pr_sqlite_answered(struct sqlite_store *store, sqlite3_stmt *stmt, int rc, const char *doing,
		       struct pr_err *err)
{
	int status = POSTROOM_OK;

	if (rc == SQLITE_INTERRUPT)
		status = pr_err_set(err, POSTROOM_BUSY, "%s: it took too long", doing);
	else if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		status = pr_sqlite_fail(store->db, store, doing, err);
	sqlite3_progress_handler(store->db, 0, NULL, NULL);
	sqlite3_finalize(stmt);
	return status;
}

/* The order of the columns that read_row() reads. */
#define LEASE                                                                                      \
	"attempts, claims, next_attempt_at, locked_by, locked_until, last_attempt_at, "            \
	"last_error, created_at, updated_at, "
/* From the view, which has every UUID with hyphens and in lower case. */
#define ROW(headers, payload, body)                                                                \
	"SELECT seq, id, status, topic, tenant_id, key, correlation_id, " payload ", " body        \
	", content_type, " headers ", " LEASE "namespace, dedupe_key, delivered_at "               \
	"FROM postroom_messages WHERE "
#define WHOLE_ROW ROW("headers", "payload", "body")
#define BRIEF_ROW ROW("'{}'", "''", "NULL")
/* A plain INSERT of a completed row need not say when it was completed: when it was written. */
#define INBOX_ROW(headers, payload, body, progress)                                                \
	"SELECT seq, id, status, coalesce(topic, handler_name), tenant_id, key, "                  \
	"correlation_id, " payload ", " body ", content_type, " headers ", " LEASE                 \
	"handler_name, "                                                                           \
	"CASE WHEN status = 'completed' THEN coalesce(processed_at, updated_at) END, " progress    \
	" FROM postroom_inbox WHERE "
#define WHOLE_INBOX_ROW                                                                            \
	INBOX_ROW("headers", PR_SQLITE_PART("payload"), PR_SQLITE_PART("body"), "checkpoint, steps")
#define BRIEF_INBOX_ROW INBOX_ROW("'{}'", "NULL", "NULL", "NULL, '{}'")

#define TEXT(column) ((const char *)sqlite3_column_text(stmt, column))
#define NUMBER(column) sqlite3_column_int64(stmt, column)

static void read_row(sqlite3_stmt *stmt, postroom_table table, postroom_row *row)
{
	*row = (postroom_row){
		.seq = NUMBER(0),
		.id = TEXT(1),
		.status = TEXT(2),
		.topic = TEXT(3),
		.tenant_id = TEXT(4),
		.key = TEXT(5),
		.correlation_id = TEXT(6),
		.payload = TEXT(7),
		.payload_len = (size_t)sqlite3_column_bytes(stmt, 7),
		.content_type = TEXT(9),
		.headers = TEXT(10),
		.attempts = (int32_t)NUMBER(11),
		.claims = NUMBER(12),
		.next_attempt_at_us = NUMBER(13),
		.locked_by = TEXT(14),
		.locked_until_us = NUMBER(15),
		.last_attempt_at_us = NUMBER(16),
		.last_error = TEXT(17),
		.created_at_us = NUMBER(18),
		.updated_at_us = NUMBER(19),
	};
	if (table == POSTROOM_OUTBOX) {
		row->ns = TEXT(20);
		row->dedupe_key = TEXT(21);
		row->delivered_at_us = NUMBER(22);
	} else {
		row->handler = TEXT(20);
		row->processed_at_us = NUMBER(21);
		row->checkpoint = TEXT(22);
		row->steps = TEXT(23);
	}
	if (sqlite3_column_type(stmt, 8) != SQLITE_NULL) {
		const void *body = sqlite3_column_blob(stmt, 8);

		row->body = body ? body : "";
		row->body_len = (size_t)sqlite3_column_bytes(stmt, 8);
	}
}
#undef TEXT
#undef NUMBER

/* Runs the query and gives each row to fn. */
static int give_rows(struct sqlite_store *store, const struct pr_query *query, postroom_table table,
		     postroom_row_fn fn, void *context, struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare_query(store, query, err);
	int rc;

	if (!stmt)
		return err->status;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		postroom_row row;

		read_row(stmt, table, &row);
		/* A column that cannot be converted for want of memory is NULL. */
		if (sqlite3_errcode(store->db) == SQLITE_NOMEM) {
			rc = SQLITE_NOMEM;
			break;
		}
		if (fn(context, &row) != 0)
			break;
	}
	return pr_sqlite_answered(
		store, stmt, rc, table == POSTROOM_INBOX ? "reading the inbox" : "reading messages",
		err);
}

/* The sort order of a page, and where the previous page ended. */
struct page {
	bool counted;	  /* in any order */
	bool by_delivery; /* newest delivery first */
	int64_t after, after_us;
	int64_t rows, offset; /* of each branch */
};

/* A branch: the matching rows of one index. */
static void put_branch(struct pr_query *query, const postroom_filter *filter, const char *from,
		       const struct page *page)
{
	pr_query_put(query, "SELECT seq FROM ");
	pr_query_put(query, pr_filter_table(filter)->name);
	pr_query_put(query, from);
	pr_query_filter(query, filter, pr_sqlite_words(filter),
			page->by_delivery ? "delivered_at" : "updated_at");
	if (page->after && page->by_delivery) {
		pr_query_number(query, " AND (delivered_at, seq) < (@, ", page->after_us);
		pr_query_number(query, "@)", page->after);
	} else if (page->after) {
		pr_query_number(query, " AND seq < @", page->after);
	}
	if (!page->counted)
		pr_query_put(query, page->by_delivery ? " ORDER BY delivered_at DESC, seq DESC"
						      : " ORDER BY seq DESC");
	pr_query_number(query, " LIMIT @", page->rows);
	pr_query_number(query, " OFFSET @", page->offset);
}

/*
 * Failed messages that are held behind others of their key. Without a key a failed message
 * waits for its due time.
 */
#define KEYED_ROWS                                                                                 \
	"_key WHERE key IS NOT NULL AND {done_at} IS NULL AND state <> 'dead' "                    \
	"AND (claims > 0 OR state IN ('held', 'ready') OR (state = 'new' AND next_attempt_at < "   \
	"created_at)) "                                                                            \
	"AND state = 'ready' AND status = 'pending'"
#define HELD_ROWS "_held WHERE state = 'held' AND status = 'pending'"

/* Each status has an index that contains it. A status without one is scanned by seq. */
static const struct kind {
	const char *status;
	const char *paths[3]; /* "" is before the table's name and behind INDEXED BY */
	const char *also;     /* AND this */
} kinds[] = {
	{ "pending",
	  { "_ready WHERE " PR_SQLITE_READY, "_due WHERE " PR_SQLITE_DUE, HELD_ROWS },
	  "" },
	{ "failed", { KEYED_ROWS, "_due WHERE " PR_SQLITE_DUE, HELD_ROWS }, " AND attempts > 0" },
	{ "processing", { "_leased WHERE status = 'processing'" }, "" },
	{ "active", { "_leased WHERE status = 'active'" }, "" },
	{ "dead", { "_dead WHERE status = 'dead'" }, "" },
	{ "delivered", { "_delivered WHERE status = 'delivered'" }, "" },
};

static void put_from(const postroom_filter *filter, const char *branch, const char *also,
		     struct pr_buf *out)
{
	pr_table_sql(pr_filter_table(filter), " INDEXED BY {table}", out);
	pr_table_sql(pr_filter_table(filter), branch, out);
	pr_buf_puts(out, also);
}

/* Several branches: each gives what a page needs at most, and the page is taken from all of them. */
static void put_branches(struct pr_query *query, const postroom_filter *filter,
			 const struct kind *kind, const struct page *page)
{
	struct page whole = *page;

	whole.rows += page->offset;
	whole.offset = 0;
	pr_query_put(query, "SELECT seq FROM (");
	for (size_t i = 0; i < 3; i++) {
		PR_CLEANUP_BUF struct pr_buf from = { 0 };

		put_from(filter, kind->paths[i], kind->also, &from);
		pr_query_put(query, i > 0 ? " UNION ALL SELECT * FROM (" : "SELECT * FROM (");
		put_branch(query, filter, pr_buf_text(&from), &whole);
		pr_query_put(query, ")");
		query->sql.failed |= from.failed;
	}
	pr_query_put(query, page->counted ? ")" : ") ORDER BY seq DESC");
	pr_query_number(query, " LIMIT @", page->rows);
	pr_query_number(query, " OFFSET @", page->offset);
}

/* A row with an id is found by it. */
static void put_by_id(struct pr_query *query, const postroom_filter *filter,
		      const struct page *page)
{
	char from[80];

	if (!filter->status)
		snprintf(from, sizeof(from), " WHERE true");
	else if (pr_filter_is(filter, "failed"))
		snprintf(from, sizeof(from), " WHERE status = 'pending' AND attempts > 0");
	else
		snprintf(from, sizeof(from), " WHERE status = '%.20s'", filter->status);
	put_branch(query, filter, from, page);
}

/* Appends a query for the numbers of the rows. */
static void put_page(struct pr_query *query, const postroom_filter *filter, const struct page *page)
{
	PR_CLEANUP_BUF struct pr_buf from = { 0 };

	if (filter->id) {
		put_by_id(query, filter, page);
		return;
	}
	for (size_t i = 0; filter->status && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].status, filter->status) != 0)
			continue;
		put_from(filter, kinds[i].paths[0], kinds[i].also, &from);
		query->sql.failed |= from.failed;
		if (kinds[i].paths[1])
			put_branches(query, filter, &kinds[i], page);
		else
			put_branch(query, filter, pr_buf_text(&from), page);
		return;
	}
	if (filter->status && page->counted)
		put_branch(query, filter,
			   " INDEXED BY postroom_inbox_completed WHERE status = 'completed'", page);
	else
		put_branch(query, filter,
			   filter->status ? " NOT INDEXED WHERE status = 'completed'"
					  : " NOT INDEXED WHERE true",
			   page);
}

/* Where the list continues; POSTROOM_NOT_FOUND when there is no such message. */
static int find_after(struct sqlite_store *store, const postroom_filter *filter, struct page *page,
		      struct pr_err *err)
{
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	struct pr_position position;
	sqlite3_stmt *stmt;
	int status = POSTROOM_OK;
	int rc;

	if (filter->table == POSTROOM_INBOX) {
		page->after = strtoll(filter->after, NULL, 10);
		return POSTROOM_OK;
	}
	if (!pr_position_parse(filter->after, &position))
		return pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s", filter->after);
	/* The row may have been deleted, or delivered, since. */
	if (position.known && (!page->by_delivery || position.delivered_at_us)) {
		page->after = position.seq;
		page->after_us = position.delivered_at_us;
		return POSTROOM_OK;
	}
	pr_query_text(&query, "SELECT seq, status, delivered_at FROM postroom_outbox WHERE id" UUID,
		      position.id);
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_DONE)
		status = pr_err_set(err, POSTROOM_NOT_FOUND, "there is no message %s",
				    filter->after);
	else if (rc == SQLITE_ROW && page->by_delivery &&
		 sqlite3_column_type(stmt, 2) == SQLITE_NULL)
		status = pr_err_set(err, POSTROOM_NOT_FOUND,
				    "message %s is %s; the list has delivered messages",
				    filter->after, (const char *)sqlite3_column_text(stmt, 1));
	page->after = sqlite3_column_int64(stmt, 0);
	page->after_us = sqlite3_column_int64(stmt, 2);
	rc = pr_sqlite_answered(store, stmt, rc, "reading messages", err);
	return rc < 0 ? rc : status;
}

int pr_sqlite_list(struct postroom_store *base, const postroom_filter *filter, int32_t limit,
		   postroom_row_fn fn, void *context, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	bool inbox = filter->table == POSTROOM_INBOX,
	     by_delivery = pr_filter_is(filter, "delivered");
	struct page page = { .by_delivery = by_delivery, .rows = limit, .offset = filter->offset };
	int status = filter->after ? find_after(store, filter, &page, err) : POSTROOM_OK;

	if (status < 0)
		return status;
	pr_query_put(&query, inbox ? (filter->brief ? BRIEF_INBOX_ROW : WHOLE_INBOX_ROW)
				   : (filter->brief ? BRIEF_ROW : WHOLE_ROW));
	pr_query_put(&query, "seq IN (");
	put_page(&query, filter, &page);
	pr_query_put(&query, by_delivery ? ") ORDER BY delivered_at DESC, seq DESC"
					 : ") ORDER BY seq DESC");
	return give_rows(store, &query, filter->table, fn, context, err);
}

int pr_sqlite_count(struct postroom_store *base, const postroom_filter *filter, int64_t cap,
		    int64_t *ret, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	PR_CLEANUP_QUERY struct pr_query query = { .mark = '?' };
	const struct page page = { .counted = true,
				   .rows = cap,
				   .by_delivery = pr_filter_is(filter, "delivered") };
	sqlite3_stmt *stmt;
	int rc;

	pr_query_put(&query, "SELECT count(*) FROM (");
	put_page(&query, filter, &page);
	pr_query_put(&query, ")");
	stmt = pr_sqlite_prepare_query(store, &query, err);
	if (!stmt)
		return err->status;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	return pr_sqlite_answered(store, stmt, rc, "counting messages", err);
}
