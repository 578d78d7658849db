/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads items from rows, and the content of large messages after their claim has been committed.
 *
 * 1. Large content has its own row in postroom_content. No claim, renewal, settle or retry loads it.
 * 2. Payload and body are read through blob handles. A handle reports the size before it reads a
 *    byte, and it reads into the item's memory. A query would read the whole value first.
 * 3. A value that is neither text nor a blob has no handle. It is a number, and comes with the row.
 * 4. A handle reads text as it is stored. In a UTF-16 database a query reads the text.
 */
#include "store/sqlite/sqlite.h"

#include <string.h>

static const char *copy_text(struct pr_arena *arena, sqlite3_stmt *stmt, int column, bool *failed)
{
	const unsigned char *text = sqlite3_column_text(stmt, column);
	const char *copy;

	if (!text)
		return NULL;
	copy = pr_arena_copy(arena, text, (size_t)sqlite3_column_bytes(stmt, column));
	*failed |= !copy;
	return copy;
}

/* With hyphens and in lower case, however it was written. */
static const char *copy_uuid(struct pr_arena *arena, sqlite3_stmt *stmt, int column, bool *failed)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);
	char uuid[PR_UUID_SIZE];

	if (!text || !pr_uuid_normalize(text, uuid))
		return copy_text(arena, stmt, column, failed);
	text = pr_arena_copy(arena, uuid, PR_UUID_SIZE - 1);
	*failed |= !text;
	return text;
}

/* Moves the handle to a value: of the row, or of its row in postroom_content. */
static bool open_value(const struct sqlite_content *content, const char *column, int64_t seq,
		       sqlite3_blob **blob)
{
	bool moved = content->number != 0;
	int64_t rowid = moved ? content->number : seq;

	if (*blob)
		return sqlite3_blob_reopen(*blob, rowid) == SQLITE_OK;
	return sqlite3_blob_open(content->store->db, "main",
				 moved ? "postroom_content" : content->table->name, column, rowid,
				 0, blob) == SQLITE_OK;
}

/* Reads all of it, ending in NUL. NULL with err filled. */
static const void *read_value(const struct sqlite_content *content, sqlite3_blob *blob,
			      struct pr_err *err)
{
	int len = sqlite3_blob_bytes(blob);
	char *value = pr_arena_alloc(content->arena, (size_t)len + 1);

	if (!value) {
		pr_err_nomem(err);
		return NULL;
	}
	value[len] = '\0';
	if (sqlite3_blob_read(blob, value, len, 0) == SQLITE_OK)
		return value;
	pr_sqlite_fail(content->store->db, content->store, "reading a message", err);
	return NULL;
}

void pr_sqlite_close_content(struct sqlite_content *content)
{
	sqlite3_blob_close(content->payload);
	sqlite3_blob_close(content->body);
	content->payload = content->body = NULL;
}

static bool is_utf16(struct sqlite_store *store, struct pr_err *err)
{
	sqlite3_stmt *stmt;

	if (store->utf16 == 0) {
		stmt = pr_sqlite_prepare(store, SLOT_ENCODING, NULL, "PRAGMA encoding", err);
		if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
			store->utf16 = strncmp((const char *)sqlite3_column_text(stmt, 0), "UTF-16",
					       6) == 0
					       ? 1
					       : -1;
		sqlite3_reset(stmt);
	}
	return store->utf16 == 1;
}

/* Reads a payload that is stored as UTF-16. */
static int convert_payload(struct sqlite_content *content, postroom_delivery *item,
			   struct pr_err *err)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare(
		content->store, SLOT_LOAD_TEXT, content->table,
		"SELECT " PR_SQLITE_PART("payload") " FROM {table} WHERE seq = ?1", err);
	bool failed = false;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, item->seq);
	if (sqlite3_step(stmt) != SQLITE_ROW) {
		pr_sqlite_fail(content->store->db, content->store, "reading a message", err);
		sqlite3_reset(stmt);
		return err->status;
	}
	item->payload = copy_text(content->arena, stmt, 0, &failed);
	item->payload_len = (size_t)sqlite3_column_bytes(stmt, 0);
	sqlite3_reset(stmt);
	return item->payload ? POSTROOM_OK : pr_err_nomem(err);
}

/* PR_SQLITE_CONTENT has 1 for text, and 2 for a blob, which are read through a handle. */
static bool has_handle(sqlite3_stmt *row, int column)
{
	return sqlite3_column_type(row, column) == SQLITE_INTEGER;
}

/* A number, or NULL. */
static bool copy_number(sqlite3_stmt *row, int column, struct pr_arena *arena, const char **ret,
			size_t *ret_len)
{
	bool failed = false;

	*ret = copy_text(arena, row, column, &failed);
	*ret_len = *ret ? strlen(*ret) : 0;
	return !failed;
}

static int read_payload(struct sqlite_content *content, sqlite3_stmt *row, postroom_delivery *item,
			struct pr_err *err)
{
	if (sqlite3_column_int(row, PR_COL_PAYLOAD) == 1 && has_handle(row, PR_COL_PAYLOAD) &&
	    is_utf16(content->store, err))
		return convert_payload(content, item, err);
	if (has_handle(row, PR_COL_PAYLOAD)) {
		item->payload_len = (size_t)sqlite3_blob_bytes(content->payload);
		item->payload = read_value(content, content->payload, err);
		return item->payload ? POSTROOM_OK : err->status;
	}
	if (!copy_number(row, PR_COL_PAYLOAD, content->arena, &item->payload, &item->payload_len))
		return pr_err_nomem(err);
	if (!item->payload)
		item->payload = "";
	return POSTROOM_OK;
}

static int read_body(struct sqlite_content *content, sqlite3_stmt *row, postroom_delivery *item,
		     struct pr_err *err)
{
	const char *number;

	if (has_handle(row, PR_COL_BODY)) {
		item->body_len = (size_t)sqlite3_blob_bytes(content->body);
		item->body = read_value(content, content->body, err);
		return item->body ? POSTROOM_OK : err->status;
	}
	if (!copy_number(row, PR_COL_BODY, content->arena, &number, &item->body_len))
		return pr_err_nomem(err);
	item->body = number;
	return POSTROOM_OK;
}

int pr_sqlite_read_content(struct sqlite_content *content, sqlite3_stmt *row,
			   postroom_delivery *item, struct pr_err *err)
{
	bool payload = has_handle(row, PR_COL_PAYLOAD), body = has_handle(row, PR_COL_BODY);
	size_t bytes = 0;
	int status;

	item->payload = "";
	item->withheld = (size_t)sqlite3_column_int64(row, PR_COL_WITHHELD);
	if (item->withheld)
		return POSTROOM_OK;
	if ((payload && !open_value(content, "payload", item->seq, &content->payload)) ||
	    (body && !open_value(content, "body", item->seq, &content->body)))
		return pr_sqlite_fail(content->store->db, content->store, "reading a message", err);
	if (payload)
		bytes += (size_t)sqlite3_blob_bytes(content->payload);
	if (body)
		bytes += (size_t)sqlite3_blob_bytes(content->body);
	if (bytes > content->most) {
		item->withheld = bytes;
		return POSTROOM_OK;
	}
	status = read_payload(content, row, item, err);
	return status < 0 ? status : read_body(content, row, item, err);
}

int pr_sqlite_read_row(sqlite3_stmt *row, const struct pr_table *table, struct pr_arena *arena,
		       postroom_delivery *item, struct pr_err *err)
{
	bool failed = false;

	item->seq = sqlite3_column_int64(row, PR_COL_SEQ);
	item->fencing_token = sqlite3_column_int64(row, PR_COL_FENCING_TOKEN);
	item->attempt = sqlite3_column_int(row, PR_COL_ATTEMPTS);
	item->created_at_us = sqlite3_column_int64(row, PR_COL_CREATED_AT);
	item->id = table == &pr_table_outbox ? copy_uuid(arena, row, PR_COL_ID, &failed)
					     : copy_text(arena, row, PR_COL_ID, &failed);
	item->ns = copy_text(arena, row, PR_COL_NAMESPACE, &failed);
	item->topic = copy_text(arena, row, PR_COL_TOPIC, &failed);
	item->key = copy_text(arena, row, PR_COL_KEY, &failed);
	item->tenant_id = copy_uuid(arena, row, PR_COL_TENANT_ID, &failed);
	item->dedupe_key = copy_text(arena, row, PR_COL_DEDUPE_KEY, &failed);
	item->correlation_id = copy_text(arena, row, PR_COL_CORRELATION_ID, &failed);
	item->content_type = copy_text(arena, row, PR_COL_CONTENT_TYPE, &failed);
	item->headers = copy_text(arena, row, PR_COL_HEADERS, &failed);
	return failed ? pr_err_nomem(err) : POSTROOM_OK;
}

#define EITHER(column)                                                                             \
	"CASE WHEN m.content IS NULL THEN " PR_SQLITE_VALUE("m." column) " ELSE " PR_SQLITE_VALUE( \
		"c." column) " END"
#define ONE                                                                                        \
	"SELECT {columns}, m.headers, " EITHER("payload") ", " EITHER(                             \
		"body") ", 0, m.content, "                                                         \
			"c.number FROM {table} AS m LEFT JOIN postroom_content AS c ON c.number "  \
			"= m.content "                                                             \
			"WHERE m.seq = ?1"
enum { COL_CONTENT = PR_COL_COUNT, COL_NUMBER };

/* The row under the cursor, which is of ONE. */
static int load_row(struct sqlite_content *content, sqlite3_stmt *row, postroom_delivery *item,
		    struct pr_err *err)
{
	const char *headers;
	bool failed = false;
	int status;

	content->number = sqlite3_column_int64(row, COL_NUMBER);
	if (!content->number && sqlite3_column_type(row, COL_CONTENT) != SQLITE_NULL)
		return pr_err_set(err, POSTROOM_INVALID,
				  "loading a message: its content is missing in postroom_content");
	status = pr_sqlite_read_content(content, row, item, err);
	if (status < 0 || item->withheld)
		return status;
	headers = copy_text(content->arena, row, PR_COL_HEADERS, &failed);
	if (!headers)
		return pr_err_nomem(err);
	item->headers = headers;
	return POSTROOM_OK;
}

int pr_sqlite_load(struct postroom_store *base, const struct pr_table *table,
		   postroom_delivery *item, size_t most, struct pr_arena *arena, struct pr_err *err)
{
	struct sqlite_store *store = sqlite_store(base);
	struct sqlite_content content = {
		.store = store, .table = table, .arena = arena, .most = most
	};
	sqlite3_stmt *stmt = pr_sqlite_prepare(store, SLOT_LOAD, table, ONE, err);
	int rc, status;

	if (!stmt)
		return err->status;
	sqlite3_bind_int64(stmt, 1, item->seq);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		status = load_row(&content, stmt, item, err);
	else if (rc == SQLITE_DONE)
		status = pr_store_lease_lost(1, 1, err);
	else
		status = pr_sqlite_fail(store->db, store, "loading a message", err);
	pr_sqlite_close_content(&content);
	sqlite3_reset(stmt);
	/* Of this row only. */
	if (status < 0 &&
	    ((err->native & 0xff) == SQLITE_CORRUPT || (err->native & 0xff) == SQLITE_TOOBIG))
		return err->status = POSTROOM_INVALID;
	if (status >= 0 && item->withheld)
		return pr_err_set(err, POSTROOM_BUSY, "loading a message: it has %zu bytes",
				  item->withheld);
	return status;
}
