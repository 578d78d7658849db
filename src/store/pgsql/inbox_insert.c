/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inserts events into the inbox, and records the progress of jobs (N2, J2).
 *
 * 1. All events of a call are one transaction: the new rows, and the effects of the statement for
 *    completed ones. After the commit the events may be acknowledged.
 * 2. Rows are written in the order of their ids: two consumers with the same events wait for each
 *    other in one direction only. Their seq is drawn before, in order of receipt.
 * 3. Two round trips for any number of events: one writes the rows and returns which are new, one
 *    runs the statement for these and commits.
 * 4. With order, an event behind an unfinished event of its key is written as a job instead, and
 *    claims respect the order. If dead letters block, they count, too. This also applies if
 *    another consumer committed the earlier event after our scan.
 * 5. Results are returned only after the commit.
 */
#include "store/pgsql/array.h"
#include "store/pgsql/statements.h"

#include <stdlib.h>
#include <string.h>

enum {
	ARRAY_ID,
	ARRAY_TOPIC,
	ARRAY_KEY,
	ARRAY_CONTENT_TYPE,
	ARRAY_HEADERS,
	ARRAY_PAYLOAD,
	ARRAY_BODY,
	ARRAY_HOW,
	ARRAY_ATTEMPTS,
	ARRAY_DELAY,
	ARRAY_ERROR,
	ARRAY_TENANT,
	ARRAY_CORRELATION,
	ARRAYS
};
_Static_assert(ARRAYS <= PG_SETTLE_ARRAYS, "pgsql.h has room for them");
_Static_assert(PR_INSERT_COMPLETED == 0 && PR_INSERT_PENDING == 1 && PR_INSERT_DEAD == 2,
	       "the statements count on this order");

/* One call. */
struct arriving {
	const char *handler;
	const char *statement; /* NULL: nothing is to be done */
	enum pr_insert_order order;
	bool done;    /* some are to arrive so */
	size_t first; /* of them */
	struct pr_incoming_event *incoming_events;
	size_t count;
	int *dispositions; /* what each was written as; KNOWN: not at all */
	bool *known;	   /* which of them were known before the last try */
	size_t *run;	   /* for which of them the statement is run */
	struct pr_statement_parameters *events;
	struct pgsql_running running;
	size_t at; /* whose fault it was */
};
#define KNOWN -1

static int add_incoming_events(struct pgsql_store *store, const struct arriving *arriving,
			       struct pr_err *err)
{
	struct pr_buf *arrays = store->arrays;

	for (size_t i = 0; i < ARRAYS; i++)
		pr_buf_reset(&arrays[i]);
	for (size_t i = 0; i < arriving->count; i++) {
		const struct pr_incoming_event *incoming = &arriving->incoming_events[i];

		pr_pgsql_array_add_text(&arrays[ARRAY_ID], incoming->id);
		pr_pgsql_array_add_text(&arrays[ARRAY_TOPIC], incoming->topic);
		pr_pgsql_array_add_text(&arrays[ARRAY_KEY], incoming->key);
		pr_pgsql_array_add_text(&arrays[ARRAY_CONTENT_TYPE], incoming->content_type);
		pr_pgsql_array_add_text(&arrays[ARRAY_HEADERS], incoming->headers);
		pr_pgsql_array_add(&arrays[ARRAY_PAYLOAD], incoming->payload.data,
				   incoming->payload.len);
		pr_pgsql_array_add_bytes(&arrays[ARRAY_BODY], incoming->body.data,
					 incoming->body.len);
		pr_pgsql_array_add_number(&arrays[ARRAY_HOW], (int64_t)incoming->how);
		pr_pgsql_array_add_number(&arrays[ARRAY_ATTEMPTS], incoming->attempts);
		pr_pgsql_array_add_number(&arrays[ARRAY_DELAY], incoming->delay_ms);
		pr_pgsql_array_add_text(&arrays[ARRAY_ERROR], incoming->error);
		pr_pgsql_array_add_text(&arrays[ARRAY_TENANT], incoming->tenant_id);
		pr_pgsql_array_add_text(&arrays[ARRAY_CORRELATION], incoming->correlation_id);
	}
	for (size_t i = 0; i < ARRAYS; i++) {
		pr_pgsql_array_end(&arrays[i]);
		if (arrays[i].failed)
			return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}

static void read_inserted(struct arriving *arriving, const PGresult *result)
{
	for (size_t i = 0; i < arriving->count; i++)
		arriving->dispositions[i] = KNOWN;
	for (int row = 0; row < PQntuples(result); row++) {
		size_t number = (size_t)pr_pgsql_read_int8(result, row, 0);

		arriving->dispositions[number - 1] = pr_pgsql_read_int4(result, row, 1);
	}
}

/* An event violates a limit of the tables; the error does not say which event. */
static bool is_refused(const struct pr_err *err)
{
	return strncmp(err->sqlstate, "22", 2) == 0 || strncmp(err->sqlstate, "23", 2) == 0 ||
	       strncmp(err->sqlstate, "54", 2) == 0;
}

static struct pgsql_step insert_step(struct pgsql_store *store, const struct arriving *arriving,
				     bool in_order, struct pgsql_params *params)
{
	const struct pr_buf *a = store->arrays;

	if (!in_order) {
		pr_sql_bind_inbox_insert(
			params, arriving->handler, a[ARRAY_ID].data, a[ARRAY_TOPIC].data,
			a[ARRAY_KEY].data, a[ARRAY_CONTENT_TYPE].data, a[ARRAY_HEADERS].data,
			a[ARRAY_PAYLOAD].data, a[ARRAY_BODY].data, a[ARRAY_HOW].data,
			a[ARRAY_ATTEMPTS].data, a[ARRAY_DELAY].data, a[ARRAY_ERROR].data,
			a[ARRAY_TENANT].data, a[ARRAY_CORRELATION].data);
		return pr_sql_step(&pr_sql_inbox_insert, params);
	}
	pr_sql_bind_inbox_insert_ordered(
		params, arriving->handler, a[ARRAY_ID].data, a[ARRAY_TOPIC].data, a[ARRAY_KEY].data,
		a[ARRAY_CONTENT_TYPE].data, a[ARRAY_HEADERS].data, a[ARRAY_PAYLOAD].data,
		a[ARRAY_BODY].data, a[ARRAY_HOW].data, a[ARRAY_ATTEMPTS].data, a[ARRAY_DELAY].data,
		a[ARRAY_ERROR].data, a[ARRAY_TENANT].data, a[ARRAY_CORRELATION].data,
		arriving->order == PR_ORDER_DEAD);
	return pr_sql_step(&pr_sql_inbox_insert_ordered, params);
}

/* Writes them; leaves the transaction open if some arrive done. */
static int insert_events(struct pgsql_store *store, struct arriving *arriving, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	struct pgsql_step steps[4], *insert;
	bool in_order = arriving->done && arriving->order != PR_ORDER_NONE;
	size_t count = 0;
	int status = add_incoming_events(store, arriving, err);

	if (status < 0)
		return status;
	if (arriving->done)
		steps[count++] = pr_sql_step(&pr_sql_begin, NULL);
	if (in_order)
		steps[count++] = pr_sql_step(&pr_sql_avoid_seqscan, NULL);
	insert = &steps[count++];
	*insert = insert_step(store, arriving, in_order, &params);
	if (in_order)
		steps[count++] = pr_sql_step(&pr_sql_allow_seqscan, NULL);
	status = pr_pgsql_run_all(store, steps, count, pr_sql_inbox_insert.doing, err);
	if (status == POSTROOM_DATABASE && is_refused(err)) {
		status = err->status = POSTROOM_TX_ABORTED;
		arriving->at = 0;
	}
	if (status >= 0)
		read_inserted(arriving, insert->result);
	for (size_t i = 0; status >= 0 && i < count; i++)
		PQclear(steps[i].result);
	return status;
}

static bool overtakes(const struct arriving *arriving, size_t duplicate)
{
	const struct pr_incoming_event *first = &arriving->incoming_events[duplicate];

	for (size_t i = duplicate + 1; first->key && i < arriving->count; i++) {
		const struct pr_incoming_event *incoming = &arriving->incoming_events[i];

		if (arriving->dispositions[i] == PR_INSERT_COMPLETED && incoming->key &&
		    strcmp(incoming->key, first->key) == 0 &&
		    strcmp(incoming->topic, first->topic) == 0)
			return true;
	}
	return false;
}

/*
 * While the insert waited for another transaction, that one may have committed some of the events
 * as unfinished jobs: only another query sees them.
 */
static bool must_rescan(const struct arriving *arriving)
{
	bool again = false;

	for (size_t i = 0; i < arriving->count; i++) {
		if (arriving->dispositions[i] != KNOWN || arriving->known[i])
			continue;
		arriving->known[i] = true;
		again |= overtakes(arriving, i);
	}
	return again;
}

static int insert_events_in_order(struct pgsql_store *store, struct arriving *arriving,
				  struct pr_err *err)
{
	int status = insert_events(store, arriving, err);

	while (status >= 0 && arriving->done && arriving->order != PR_ORDER_NONE &&
	       must_rescan(arriving)) {
		pr_pgsql_rollback(store);
		status = insert_events(store, arriving, err);
	}
	return status;
}

static int run_statement(struct pgsql_store *store, struct arriving *arriving, struct pr_err *err)
{
	size_t count = 0;
	int status;

	for (size_t i = 0; arriving->statement && i < arriving->count; i++) {
		const struct pr_incoming_event *incoming = &arriving->incoming_events[i];

		if (arriving->dispositions[i] != PR_INSERT_COMPLETED)
			continue;
		arriving->run[count] = i;
		arriving->events[count++] = pr_incoming_event_parameters(incoming);
	}
	arriving->running.events = arriving->events;
	arriving->running.count = count;
	status = pr_pgsql_run_statement(store, &arriving->running, err);
	if (status == POSTROOM_TX_ABORTED && count > 0)
		arriving->at = arriving->run[arriving->running.at];
	return status;
}

static int insert_once_more(struct pgsql_store *store, struct arriving *arriving,
			    struct pr_err *err)
{
	int status;

	arriving->at = arriving->first;
	arriving->running.late = false;
	if (arriving->done && arriving->statement &&
	    pr_pgsql_prepare_statement(store, arriving->statement, err) < 0)
		return err->status;
	status = insert_events_in_order(store, arriving, err);
	if (status >= 0 && arriving->done)
		status = run_statement(store, arriving, err);
	if (status < 0 && arriving->done)
		pr_pgsql_rollback(store);
	return status;
}

static int insert_all(struct pgsql_store *store, struct arriving *arriving, size_t *ret_at,
		      struct pr_err *err)
{
	struct pgsql_running *running = &arriving->running;
	int status, tries = 0;

	for (;;) {
		status = insert_once_more(store, arriving, err);
		/* The commit has found a constraint broken: once more, to see by whom. */
		if (status == POSTROOM_TX_ABORTED && running->late && running->count > 1 &&
		    !running->careful)
			running->careful = true;
		else if (!pr_pgsql_should_retry(store, &status, tries++, err))
			break;
	}
	if (status == POSTROOM_TX_ABORTED)
		*ret_at = arriving->at;
	return status;
}

int pr_pgsql_inbox_insert(struct postroom_store *base, const struct pr_inbox_insert *insert,
			  size_t *ret_at, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct pr_incoming_event *incoming_events = insert->events;
	size_t count = insert->count;
	struct arriving arriving = { .handler = insert->handler,
				     .statement = insert->statement,
				     .order = insert->order,
				     .incoming_events = incoming_events,
				     .count = count };
	int status = POSTROOM_OK;

	for (size_t i = count; i-- > 0;) {
		if (incoming_events[i].how != PR_INSERT_COMPLETED)
			continue;
		arriving.done = true;
		arriving.first = i;
	}
	arriving.dispositions = reallocarray(NULL, count + 1, sizeof(*arriving.dispositions));
	arriving.known = calloc(count + 1, sizeof(*arriving.known));
	arriving.run = reallocarray(NULL, count + 1, sizeof(*arriving.run));
	arriving.events = reallocarray(NULL, count + 1, sizeof(*arriving.events));
	if (!arriving.dispositions || !arriving.known || !arriving.run || !arriving.events)
		status = pr_err_nomem(err);
	if (status >= 0)
		status = insert_all(store, &arriving, ret_at, err);
	for (size_t i = 0; status >= 0 && i < count; i++) {
		incoming_events[i].duplicate = arriving.dispositions[i] == KNOWN;
		incoming_events[i].waits = incoming_events[i].how == PR_INSERT_COMPLETED &&
					   arriving.dispositions[i] == PR_INSERT_PENDING;
	}
	free(arriving.dispositions);
	free(arriving.known);
	free(arriving.run);
	free(arriving.events);
	return status;
}

int pr_pgsql_progress(struct postroom_store *base, const struct pr_progress *progress,
		      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_sql_bind_job_progress(&params, progress->id, progress->handler, progress->fencing_token,
				 progress->step, progress->result, progress->checkpoint);
	result = pr_sql_run(pgsql_store(base), &pr_sql_job_progress, &params, err);
	if (!result)
		return err->status;
	return strcmp(PQcmdTuples(result), "1") == 0 ? POSTROOM_OK : pr_store_lease_lost(1, 1, err);
}
