/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the result of a claim into the items of a batch. Strings stay in the result, which the
 * batch owns.
 */
#include "store/pgsql/pgsql.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* PostgreSQL counts from 2000. */
#define EPOCH_US 946684800000000LL

int64_t pr_pgsql_read_int8(const PGresult *result, int row, int column)
{
	uint64_t value;

	memcpy(&value, PQgetvalue(result, row, column), sizeof(value));
	return (int64_t)be64toh(value);
}

int64_t pr_pgsql_read_time(const PGresult *result, int row, int column)
{
	return pr_pgsql_read_int8(result, row, column) + EPOCH_US;
}

const char *pr_pgsql_text_at(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

int64_t pr_pgsql_number_at(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? 0 : atoll(PQgetvalue(result, row, column));
}

bool pr_pgsql_body_at(const PGresult *result, int row, int column, unsigned char **ret,
		      size_t *ret_len)
{
	if (PQgetisnull(result, row, column)) {
		*ret = NULL;
		return true;
	}
	*ret = PQunescapeBytea((const unsigned char *)PQgetvalue(result, row, column), ret_len);
	return *ret != NULL;
}

int32_t pr_pgsql_read_int4(const PGresult *result, int row, int column)
{
	uint32_t value;

	memcpy(&value, PQgetvalue(result, row, column), sizeof(value));
	return (int32_t)be32toh(value);
}

size_t pr_pgsql_read_array(const PGresult *result, int64_t *numbers, size_t max)
{
	/* Dimensions, flags, type, length, lower bound; then each with its size in front. */
	const size_t head = 20, step = sizeof(uint32_t) + sizeof(uint64_t);
	const char *data = PQgetvalue(result, 0, 0);
	size_t len = (size_t)PQgetlength(result, 0, 0);
	size_t count = len > head ? (len - head) / step : 0;

	for (size_t i = 0; i < count && i < max; i++) {
		uint64_t value;

		memcpy(&value, data + head + i * step + sizeof(uint32_t), sizeof(value));
		numbers[i] = (int64_t)be64toh(value);
	}
	return count < max ? count : max;
}

/* tid: block, offset */
static int64_t read_ctid(const PGresult *result, int row, int column)
{
	const char *value = PQgetvalue(result, row, column);
	uint32_t block;
	uint16_t offset;

	memcpy(&block, value, sizeof(block));
	memcpy(&offset, value + sizeof(block), sizeof(offset));
	return (int64_t)be32toh(block) << 16 | be16toh(offset);
}

static const char *read_uuid(const PGresult *result, int row, int column, struct pr_arena *arena,
			     bool *failed)
{
	char *text;

	if (PQgetisnull(result, row, column))
		return NULL;
	text = pr_arena_alloc(arena, PR_UUID_SIZE);
	if (text)
		pr_uuid_format((const unsigned char *)PQgetvalue(result, row, column), text);
	*failed |= !text;
	return text;
}

/* Strings stay in the result, which the batch keeps. */
static bool read_row(const struct pr_table *table, const PGresult *result, int row,
		     struct pr_arena *arena, postroom_delivery *item)
{
	bool failed = false;

	item->seq = pr_pgsql_read_int8(result, row, PR_COL_SEQ);
	item->fencing_token = pr_pgsql_read_int8(result, row, PR_COL_FENCING_TOKEN);
	item->attempt = pr_pgsql_read_int4(result, row, PR_COL_ATTEMPTS);
	item->created_at_us = pr_pgsql_read_time(result, row, PR_COL_CREATED_AT);
	item->id = table->lanes ? read_uuid(result, row, PR_COL_ID, arena, &failed) :
				  pr_pgsql_text_at(result, row, PR_COL_ID);
	item->ns = pr_pgsql_text_at(result, row, PR_COL_NAMESPACE);
	item->topic = pr_pgsql_text_at(result, row, PR_COL_TOPIC);
	item->key = pr_pgsql_text_at(result, row, PR_COL_KEY);
	item->tenant_id = read_uuid(result, row, PR_COL_TENANT_ID, arena, &failed);
	item->dedupe_key = pr_pgsql_text_at(result, row, PR_COL_DEDUPE_KEY);
	item->correlation_id = pr_pgsql_text_at(result, row, PR_COL_CORRELATION_ID);
	item->content_type = pr_pgsql_text_at(result, row, PR_COL_CONTENT_TYPE);
	item->headers = "{}";
	item->payload = "";
	item->withheld = (size_t)pr_pgsql_read_int8(result, row, PR_COL_WITHHELD);
	/* jsonb's binary form is a version number and the text. */
	if (!PQgetisnull(result, row, PR_COL_HEADERS))
		item->headers = PQgetvalue(result, row, PR_COL_HEADERS) + 1;
	if (!PQgetisnull(result, row, PR_COL_PAYLOAD)) {
		item->payload = PQgetvalue(result, row, PR_COL_PAYLOAD) + 1;
		item->payload_len = (size_t)PQgetlength(result, row, PR_COL_PAYLOAD) - 1;
	}
	item->body = pr_pgsql_text_at(result, row, PR_COL_BODY);
	item->body_len = (size_t)PQgetlength(result, row, PR_COL_BODY);
	return !failed;
}

/* A batch may come from several answers. */
struct kept {
	PGresult *result;
	struct kept *next;
};

static void free_result(void *held)
{
	/* The list itself is in the batch's arena. */
	for (struct kept *kept = held; kept; kept = kept->next)
		PQclear(kept->result);
}

static bool keep_result(struct postroom_batch *batch, PGresult *result)
{
	struct kept *kept = pr_arena_alloc(&batch->arena, sizeof(*kept));

	if (!kept) {
		PQclear(result);
		return false;
	}
	*kept = (struct kept){ .result = result, .next = batch->held };
	batch->held = kept;
	batch->release_owned = free_result;
	return true;
}

static int compare_seq(const void *left, const void *right)
{
	const postroom_delivery *a = left, *b = right;

	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* Due before others, but never before an earlier one of its key. */
static void move_behind_key(const postroom_delivery *first, postroom_delivery *item)
{
	for (const postroom_delivery *earlier = item; item->key && earlier-- > first;) {
		if (earlier->key && strcmp(earlier->key, item->key) == 0 &&
		    strcmp(earlier->topic, item->topic) == 0 && strcmp(earlier->ns, item->ns) == 0) {
			if (earlier->due_us > item->due_us)
				item->due_us = earlier->due_us;
			return;
		}
	}
}

/* An answer is in no order. */
static void sort_batch(postroom_delivery *items, size_t count)
{
	int64_t latest_us = 0;

	qsort(items, count, sizeof(*items), compare_seq);
	for (size_t i = 0; i < count; i++) {
		if (items[i].due_us < latest_us)
			move_behind_key(items, &items[i]);
		else
			latest_us = items[i].due_us;
	}
}

int pr_pgsql_read_batch(const struct pr_table *table, PGresult *result, bool by_lane,
		  const char *reason, struct postroom_batch *batch, struct pr_err *err)
{
	size_t first = batch->count;

	if (!keep_result(batch, result))
		return pr_err_nomem(err);
	for (int row = 0; row < PQntuples(result); row++) {
		postroom_delivery *item;
		bool dead;

		if (PQgetisnull(result, row, PR_COL_SEQ))
			continue;
		dead = *PQgetvalue(result, row, PG_COL_DEAD);
		item = dead ? pr_batch_add_dead_letter(batch) : pr_batch_add(batch);
		if (!item || !read_row(table, result, row, &batch->arena, item))
			return pr_err_nomem(err);
		item->dead = dead;
		if (dead) {
			item->reason = reason;
			continue;
		}
		item->due_us = pr_pgsql_read_time(result, row, PG_COL_DUE);
		/* With a lane lease the row is not written and has no claim of its own. */
		if (by_lane) {
			item->lane = pr_pgsql_read_int4(result, row, PG_COL_LANE);
			item->fencing_token = pr_pgsql_read_int8(result, row, PG_COL_EPOCH);
			item->ctid = read_ctid(result, row, PG_COL_CTID);
			item->attempt++;
		}
	}
	if (batch->count > first)
		sort_batch(batch->items + first, batch->count - first);
	return POSTROOM_OK;
}
