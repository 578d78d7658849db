/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes thousands of messages in one call (E7), on the application's connection and in its
 * transaction.
 *
 * 1. They are written in the order of their dedupe keys, over the whole call: two transactions
 *    with the same keys wait for each other in one direction only, and cannot deadlock.
 * 2. Their seq is drawn before, in the order of the caller.
 * 3. The statements take arrays: a statement has at most 65,535 parameters.
 * 4. Duplicates are looked up by the chunk, too.
 */
#include "base/time.h"
#include "store/pgsql/array.h"
#include "store/pgsql/box.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

/* One statement's share. */
#define CHUNK_MESSAGES 1000
#define CHUNK_BYTES ((size_t)4 * 1024 * 1024)

/* A message's place in the order of writing. */
struct entry {
	const char *ns, *topic, *dedupe_key;
	size_t index; /* as the caller gave it */
	int64_t seq;
	bool open; /* not written yet, and not known to be a duplicate */
};

struct bulk {
	struct pgsql_box *box;
	const postroom_message *messages;
	postroom_receipt *receipts; /* the caller's, or NULL */
	postroom_receipt *own;	    /* a chunk's, if so */
	struct entry *entries;
	size_t count;
	struct pr_arena arena;
};

static int compare_keys(const struct entry *a, const struct entry *b)
{
	int order = strcmp(a->ns, b->ns);

	if (order == 0)
		order = strcmp(a->topic, b->topic);
	return order ? order : strcmp(a->dedupe_key, b->dedupe_key);
}

/* Messages without a key wait for no other; they come last, in their original order. */
static int compare_entries(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	int order = !a->dedupe_key - !b->dedupe_key;

	if (order == 0 && a->dedupe_key)
		order = compare_keys(a, b);
	return order ? order : a->index < b->index ? -1 : a->index > b->index;
}

static int draw_seqs(struct bulk *bulk, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_draw_seqs(&params, (int64_t)bulk->count);
	result = pr_pgsql_box_run(bulk->box, &pr_sql_draw_seqs, &params, err);
	if (!result)
		return err->status;
	for (size_t i = 0; i < bulk->count; i++)
		bulk->entries[i].seq = atoll(PQgetvalue(result, (int)i, 0));
	return POSTROOM_OK;
}

static int sort_entries(struct bulk *bulk, struct pr_err *err)
{
	int status;

	bulk->entries = reallocarray(NULL, bulk->count, sizeof(*bulk->entries));
	if (!bulk->entries)
		return pr_err_nomem(err);
	for (size_t i = 0; i < bulk->count; i++) {
		struct entry *entry = &bulk->entries[i];
		struct pr_prepared prepared;

		pr_message_prepare(&bulk->messages[i], &prepared);
		*entry = (struct entry){ .ns = prepared.ns,
					 .topic = prepared.topic,
					 .dedupe_key = prepared.dedupe_key,
					 .index = i };
		if (prepared.dedupe_key == prepared.dedupe_text) {
			entry->dedupe_key = pr_arena_strdup(&bulk->arena, prepared.dedupe_text);
			if (!entry->dedupe_key)
				return pr_err_nomem(err);
		}
	}
	status = draw_seqs(bulk, err);
	if (status >= 0)
		qsort(bulk->entries, bulk->count, sizeof(*bulk->entries), compare_entries);
	return status;
}

static void add_to_arrays(struct pr_buf *array, const struct pr_prepared *message, const char *id,
			  int64_t seq)
{
	pr_pgsql_array_add_text(array++, id);
	pr_pgsql_array_add_text(array++, message->ns);
	pr_pgsql_array_add_text(array++, message->topic);
	pr_pgsql_array_add_text(array++, message->key);
	pr_pgsql_array_add_text(array++, message->tenant_id);
	pr_pgsql_array_add_text(array++, message->dedupe_key);
	pr_pgsql_array_add_text(array++, message->correlation_id);
	pr_pgsql_array_add_text(array++, message->content_type);
	pr_pgsql_array_add_text(array++, message->headers);
	pr_pgsql_array_add(array++, message->payload.data, message->payload.len);
	pr_pgsql_array_add_bytes(array++, message->body.data, message->body.len);
	pr_pgsql_array_add_number(array++, message->due_offset_us);
	pr_pgsql_array_add_number(array, seq);
}

static void begin_arrays(struct pgsql_box *box)
{
	for (size_t i = 0; i < PG_BOX_ARRAYS; i++)
		pr_buf_reset(&box->arrays[i]);
}

/* Runs sql with the first arrays as its parameters. */
static PGresult *run_arrays(struct pgsql_box *box, const struct pgsql_sql *sql, struct pr_err *err)
{
	struct pgsql_params params = { 0 };

	for (int i = 0; i < sql->params; i++) {
		pr_pgsql_text(&params, pr_pgsql_array_end(&box->arrays[i]));
		if (box->arrays[i].failed) {
			pr_err_nomem(err);
			return NULL;
		}
	}
	return pr_pgsql_box_run(box, sql, &params, err);
}

static postroom_receipt *receipt_of(const struct bulk *bulk, const struct entry *entries, size_t i)
{
	return bulk->own ? &bulk->own[i] : &bulk->receipts[entries[i].index];
}

/* Writes what is free, and closes those entries. */
static int insert_free(struct bulk *bulk, struct entry *entries, size_t count, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *inserted = NULL;
	struct pr_prepared prepared;
	int row = 0;

	begin_arrays(bulk->box);
	for (size_t i = 0; i < count; i++) {
		postroom_receipt *receipt = receipt_of(bulk, entries, i);

		pr_message_prepare(&bulk->messages[entries[i].index], &prepared);
		pr_uuid_v7(&bulk->box->base.uuids, pr_now_us(), receipt->id);
		pr_receipt_set_key(receipt, &prepared);
		receipt->duplicate = receipt->differs = 0;
		add_to_arrays(bulk->box->arrays, &prepared, receipt->id, entries[i].seq);
	}
	inserted = run_arrays(bulk->box, &pr_sql_enqueue_many, err);
	if (!inserted)
		return err->status;
	/* They come back in the order they were written in, which is ours. */
	for (size_t i = 0; i < count; i++) {
		bool written = row < PQntuples(inserted) &&
			       strcmp(PQgetvalue(inserted, row, 0),
				      receipt_of(bulk, entries, i)->id) == 0;

		entries[i].open = !written || !PG_BOX_IS_NEW(inserted, row);
		row += written;
	}
	return POSTROOM_OK;
}

/* Entries whose key has a first message already, by their index. */
struct firsts {
	size_t found[CHUNK_MESSAGES], count;
	bool may_compare;
};

/* The first of each open entry's key, as far as it can be seen. */
static int find_firsts(struct bulk *bulk, struct entry *entries, size_t count,
		       struct firsts *firsts, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pr_buf *arrays = bulk->box->arrays;
	size_t *found = firsts->found;
	size_t asked = 0;

	begin_arrays(bulk->box);
	for (size_t i = 0; i < count; i++) {
		if (!entries[i].open)
			continue;
		found[asked++] = i;
		pr_pgsql_array_add_text(&arrays[0], entries[i].ns);
		pr_pgsql_array_add_text(&arrays[1], entries[i].topic);
		pr_pgsql_array_add_text(&arrays[2], entries[i].dedupe_key);
	}
	firsts->count = 0;
	if (asked == 0)
		return POSTROOM_OK;
	result = run_arrays(bulk->box, &pr_sql_find_duplicates, err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		size_t i = found[atoll(PQgetvalue(result, row, 0)) - 1];
		postroom_receipt *receipt = receipt_of(bulk, entries, i);

		memcpy(receipt->id, PQgetvalue(result, row, 1), sizeof(receipt->id));
		receipt->duplicate = 1;
		entries[i].open = false;
		firsts->may_compare = *PQgetvalue(result, row, 2) == 't';
		/* In order, so that this overwrites only what has been read. */
		found[firsts->count++] = i;
	}
	return POSTROOM_OK;
}

static int compare_with_firsts(struct bulk *bulk, struct entry *entries,
			       const struct firsts *firsts, struct pr_err *err)
{
	const size_t *found = firsts->found;
	PR_CLEANUP_RESULT PGresult *differing = NULL;
	struct pr_buf *arrays = bulk->box->arrays;
	struct pr_prepared prepared;

	begin_arrays(bulk->box);
	for (size_t i = 0; i < firsts->count; i++) {
		pr_message_prepare(&bulk->messages[entries[found[i]].index], &prepared);
		pr_pgsql_array_add_text(&arrays[0], receipt_of(bulk, entries, found[i])->id);
		pr_pgsql_array_add(&arrays[1], prepared.payload.data, prepared.payload.len);
		pr_pgsql_array_add_bytes(&arrays[2], prepared.body.data, prepared.body.len);
	}
	differing = run_arrays(bulk->box, &pr_sql_compare_duplicates, err);
	if (!differing)
		return err->status;
	for (int row = 0; row < PQntuples(differing); row++)
		receipt_of(bulk, entries, found[atoll(PQgetvalue(differing, row, 0)) - 1])
			->differs = 1;
	return POSTROOM_OK;
}

static int insert_chunk(struct bulk *bulk, struct entry *entries, size_t count, size_t *ret_at,
			struct pr_err *err)
{
	struct firsts firsts = { .count = 0 };
	int status = insert_free(bulk, entries, count, err);

	if (status >= 0)
		status = find_firsts(bulk, entries, count, &firsts, err);
	if (status >= 0 && firsts.may_compare)
		status = compare_with_firsts(bulk, entries, &firsts, err);
	/* The other transaction rolled back, or the row was purged: enqueue one by one until it is decided. */
	for (size_t i = 0; status >= 0 && i < count; i++) {
		if (!entries[i].open)
			continue;
		*ret_at = i;
		status = pr_pgsql_box_insert(bulk->box, &bulk->messages[entries[i].index],
					     receipt_of(bulk, entries, i), err);
	}
	return status;
}

/* How many of the messages one statement takes. */
static size_t chunk_of(const struct bulk *bulk, const struct entry *entries, size_t count)
{
	size_t bytes = 0, n = 0;

	while (n < count && n < CHUNK_MESSAGES && bytes < CHUNK_BYTES) {
		struct pr_prepared prepared;

		pr_message_prepare(&bulk->messages[entries[n++].index], &prepared);
		bytes += prepared.payload.len + prepared.body.len;
	}
	return n;
}

int pr_pgsql_box_insert_many(struct pgsql_box *box, const postroom_message *messages, size_t count,
			     postroom_receipt *receipts, size_t *ret_at, struct pr_err *err)
{
	struct bulk bulk = {
		.box = box, .messages = messages, .receipts = receipts, .count = count
	};
	int status = sort_entries(&bulk, err);

	if (status >= 0 && !receipts) {
		bulk.own = calloc(count < CHUNK_MESSAGES ? count : CHUNK_MESSAGES,
				  sizeof(*bulk.own));
		status = bulk.own ? POSTROOM_OK : pr_err_nomem(err);
	}
	for (size_t done = 0; status >= 0 && done < count;) {
		struct entry *entries = bulk.entries + done;
		size_t chunk = chunk_of(&bulk, entries, count - done), at = 0;

		status = insert_chunk(&bulk, entries, chunk, &at, err);
		*ret_at = entries[at].index;
		done += chunk;
	}
	free(bulk.own);
	free(bulk.entries);
	pr_arena_release(&bulk.arena);
	return status < 0 ? status : POSTROOM_OK;
}
