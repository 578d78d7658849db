/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the content of a large message after its claim was committed.
 *
 * 1. The server sends it in pieces, one row each, and libpq has only one of them in memory. The
 *    buffer of a connection never shrinks, so it must not grow with the messages.
 * 2. The first piece has the total size. If there is no memory for it, all pieces are read and
 *    dropped, and the connection stays usable.
 * 3. The server prints a payload once, for any number of pieces.
 * 4. A part that is NULL has no piece.
 */
#include "store/pgsql/statements.h"

#include <string.h>

#define DOING "loading a message"

enum { PART_HEADERS, PART_PAYLOAD, PART_BODY, PARTS };
enum { COL_NUMBER, COL_LENGTH, COL_START, COL_PIECE, COL_TOTAL };

struct content {
	struct pr_arena *arena;
	char *parts[PARTS];
	size_t lengths[PARTS];
	size_t total, most;
	bool nomem;
};

static void add_piece(struct content *content, const PGresult *row)
{
	int32_t number = pr_pgsql_read_int4(row, 0, COL_NUMBER);
	int32_t start = pr_pgsql_read_int4(row, 0, COL_START);
	char **part = &content->parts[number];

	content->total = (size_t)pr_pgsql_read_int8(row, 0, COL_TOTAL);
	if (content->total > content->most)
		return;
	if (start == 0) {
		content->lengths[number] = (size_t)pr_pgsql_read_int4(row, 0, COL_LENGTH);
		*part = pr_arena_alloc(content->arena, content->lengths[number] + 1);
		if (*part)
			(*part)[content->lengths[number]] = '\0';
		else
			content->nomem = true;
	}
	if (!content->nomem)
		memcpy(*part + start, PQgetvalue(row, 0, COL_PIECE),
		       (size_t)PQgetlength(row, 0, COL_PIECE));
}

/* Reads until the end in any case. */
static int read_pieces(struct pgsql_store *store, struct content *content, struct pr_err *err)
{
	PGresult *row;

	pr_err_clear(err);
	while ((row = pr_pgsql_await_row(store, DOING, err))) {
		if (PQresultStatus(row) == PGRES_SINGLE_TUPLE && !content->nomem)
			add_piece(content, row);
		PQclear(row);
	}
	return pr_pgsql_end_rows(store, DOING, err);
}

/* Whether an error is about this very message: it cannot be printed, converted or put together. */
static bool is_of_message(const struct pr_err *err)
{
	static const char *const prefixes[] = { "22", "53200", "54", "XX000" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (strncmp(err->sqlstate, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}

int pr_pgsql_load(struct postroom_store *base, const struct pr_table *table,
		  postroom_delivery *item, size_t most, struct pr_arena *arena, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct content content = { .arena = arena, .most = most };
	struct pgsql_params params = { 0 };

	if (table->lanes)
		pr_sql_bind_load_outbox(&params, item->id);
	else
		pr_sql_bind_load_inbox(&params, item->seq);
	if (!pr_sql_run_by_row(store, table->lanes ? &pr_sql_load_outbox : &pr_sql_load_inbox,
			       &params, err) ||
	    read_pieces(store, &content, err) < 0) {
		if (is_of_message(err))
			err->status = POSTROOM_INVALID;
		return err->status;
	}
	if (content.nomem)
		return pr_err_nomem(err);
	if (content.total > most) {
		item->withheld = content.total;
		return pr_err_set(err, POSTROOM_BUSY, DOING ": it has %zu bytes", content.total);
	}
	if (!content.parts[PART_HEADERS])
		return pr_store_lease_lost(1, 1, err);
	item->headers = content.parts[PART_HEADERS];
	item->payload = content.parts[PART_PAYLOAD] ? content.parts[PART_PAYLOAD] : "";
	item->payload_len = content.lengths[PART_PAYLOAD];
	item->body = content.parts[PART_BODY];
	item->body_len = content.lengths[PART_BODY];
	item->withheld = 0;
	return POSTROOM_OK;
}
