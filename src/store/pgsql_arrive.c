/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events come into the inbox, and jobs write down how far they are (N2, J2).
 *
 * 1. All events of a call are one transaction: what is new, and with it what the
 *    statement has done for those that arrive done. Whoever commits may acknowledge.
 * 2. They are written in the order of their ids: two consumers that were given the
 *    same events wait for each other in one direction only. Their seq is drawn before,
 *    in the order they came.
 * 3. Two round trips, however many: one that writes them and tells which are new,
 *    one that runs the statement for these and commits.
 * 4. Where keys order, what has an unfinished earlier one of its key is written as
 *    a job instead, and the claim's order holds for it; where the dead block, they too
 *    are waited for. So it is if the earlier one is another consumer's and was committed
 *    only after we had looked.
 * 5. What is told about an event is told after the commit.
 */
#include "store/pgsql.h"
#include "store/pgsql_array.h"

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
	ARRAYS
};
_Static_assert(ARRAYS <= PG_SETTLE_ARRAYS, "pgsql.h has room for them");
_Static_assert(PR_ARRIVE_DONE == 0 && PR_ARRIVE_PENDING == 1 && PR_ARRIVE_DEAD == 2,
	       "TAKE_IN counts on this order");

#define TAKE_IN(how)                                                                        \
	PG_WITH_NOW ", given AS MATERIALIZED (SELECT *, "                                   \
	"nextval('{schema}{table}_seq_seq') AS seq FROM "                                    \
	"unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], "    \
	"$8::bytea[], $9::int[], $10::int[], $11::bigint[], $12::text[]) WITH ORDINALITY "   \
	"AS v(id, topic, key, content_type, headers, payload, body, as_said, attempts, "     \
	"delay, error, n)), "                                                                \
	"decided AS MATERIALIZED (SELECT *, " how " AS how FROM given AS g), "               \
	"written AS (INSERT INTO {schema}{table} (id, handler_name, seq, topic, key, "       \
	"content_type, headers, payload, body, status, attempts, claims, next_attempt_at, "  \
	"last_attempt_at, last_error, created_at, updated_at, processed_at) "                \
	"SELECT id, $1::text, seq, topic, key, content_type, headers::jsonb, "               \
	"payload::jsonb, body, (ARRAY['completed', 'pending', 'dead'])[how + 1], attempts, " \
	"attempts, at + delay * interval '1 millisecond', "                                  \
	"CASE WHEN attempts > 0 THEN at END, error, at, at, CASE how WHEN 0 THEN at END "    \
	"FROM decided CROSS JOIN now ORDER BY id COLLATE \"C\", seq "                        \
	"ON CONFLICT (id, handler_name) DO NOTHING RETURNING seq) "                  \
	"SELECT n, how FROM written JOIN decided USING (seq)"

/* One by one, and none of them hashed: see internals/postgres.md. */
#define BEFORE(condition)                                                                   \
	"(SELECT true FROM {schema}{table} AS t WHERE t.key = g.key AND t.topic = g.topic "  \
	"AND t.namespace = $1::text AND " condition " LIMIT 1)"

/* Behind one that is unfinished, or one of this call that will be; $13: or dead. */
#define IN_ORDER                                                                            \
	"CASE WHEN as_said = 0 AND key IS NOT NULL AND coalesce("                            \
	BEFORE("t.apart = 1 AND t.status IN ('pending', 'active')") ", "                     \
	BEFORE("t.apart = 2 AND t.status = 'pending'") ", "                                  \
	"CASE WHEN $13::boolean THEN " BEFORE("t.status = 'dead'") " END, "                  \
	"bool_or(CASE WHEN as_said = 1 OR (as_said = 2 AND $13::boolean) "                   \
	"THEN (SELECT true FROM {schema}{table} AS t "                                       \
	"WHERE t.id = g.id AND t.handler_name = $1::text LIMIT 1) IS NULL END) "             \
	"OVER (PARTITION BY topic, key ORDER BY n), false) THEN 1 ELSE as_said END"

static const char take_in[] = TAKE_IN("as_said");
static const char take_in_ordered[] = TAKE_IN(IN_ORDER);

/* One call. */
struct arriving {
	const char *handler;
	const char *statement; /* NULL: nothing is to be done */
	enum pr_in_order order;
	bool done;    /* some are to arrive so */
	size_t first; /* of them */
	struct pr_arrival *arrivals;
	size_t count;
	int *fates; /* what each was written as; KNOWN: not at all */
	bool *met;  /* which of them were known before the last look */
	size_t *run; /* for which of them the statement is run */
	struct pr_effect *events;
	struct pgsql_running running;
	size_t at; /* whose fault it was */
};
#define KNOWN -1

static int add_arrivals(struct pgsql_store *store, const struct arriving *arriving,
			struct pgsql_params *params, struct pr_err *err)
{
	struct pr_buf *arrays = store->arrays;

	for (size_t i = 0; i < ARRAYS; i++)
		pr_buf_reset(&arrays[i]);
	for (size_t i = 0; i < arriving->count; i++) {
		const struct pr_arrival *arrival = &arriving->arrivals[i];

		pr_pgsql_array_add_text(&arrays[ARRAY_ID], arrival->id);
		pr_pgsql_array_add_text(&arrays[ARRAY_TOPIC], arrival->topic);
		pr_pgsql_array_add_text(&arrays[ARRAY_KEY], arrival->key);
		pr_pgsql_array_add_text(&arrays[ARRAY_CONTENT_TYPE], arrival->content_type);
		pr_pgsql_array_add_text(&arrays[ARRAY_HEADERS], arrival->headers);
		pr_pgsql_array_add(&arrays[ARRAY_PAYLOAD], arrival->payload.data,
				   arrival->payload.len);
		pr_pgsql_array_add_bytes(&arrays[ARRAY_BODY], arrival->body.data,
					 arrival->body.len);
		pr_pgsql_array_add_number(&arrays[ARRAY_HOW], (int64_t)arrival->how);
		pr_pgsql_array_add_number(&arrays[ARRAY_ATTEMPTS], arrival->attempts);
		pr_pgsql_array_add_number(&arrays[ARRAY_DELAY], arrival->delay_ms);
		pr_pgsql_array_add_text(&arrays[ARRAY_ERROR], arrival->error);
	}
	pr_pgsql_text(params, arriving->handler);
	for (size_t i = 0; i < ARRAYS; i++) {
		pr_pgsql_text(params, pr_pgsql_array_end(&arrays[i]));
		if (arrays[i].failed)
			return pr_err_nomem(err);
	}
	return POSTROOM_OK;
}

static void read_fates(struct arriving *arriving, const PGresult *result)
{
	for (size_t i = 0; i < arriving->count; i++)
		arriving->fates[i] = KNOWN;
	for (int row = 0; row < PQntuples(result); row++) {
		size_t number = (size_t)pr_pgsql_read_int8(result, row, 0);

		arriving->fates[number - 1] = pr_pgsql_read_int4(result, row, 1);
	}
}

/* Something in an event is more than the tables take; nobody knows in which. */
static bool is_refused(const struct pr_err *err)
{
	return strncmp(err->sqlstate, "22", 2) == 0 || strncmp(err->sqlstate, "23", 2) == 0 ||
	       strncmp(err->sqlstate, "54", 2) == 0;
}

/* Writes them; leaves the transaction open if some arrive done. */
static int write_down(struct pgsql_store *store, struct arriving *arriving, struct pr_err *err)
{
	struct pgsql_params params = { 0 }, no_params = { 0 };
	struct pgsql_step steps[4], *insert;
	bool in_order = arriving->done && arriving->order != PR_ORDER_NONE;
	size_t count = 0;
	int status = add_arrivals(store, arriving, &params, err);

	if (status < 0)
		return status;
	if (in_order)
		pr_pgsql_text(&params, arriving->order == PR_ORDER_DEAD ? "t" : "f");
	if (arriving->done)
		steps[count++] = pr_pgsql_begin;
	/* Keys are looked for by their index, whatever the statistics say; the statement's plan is its own. */
	if (in_order)
		steps[count++] = (struct pgsql_step){ .slot = PG_BY_INDEX,
						      .sql = "SET LOCAL enable_seqscan = off",
						      .params = &no_params };
	insert = &steps[count++];
	*insert = (struct pgsql_step){
		.slot = in_order ? PG_TAKE_IN_ORDERED : PG_TAKE_IN,
		.sql = in_order ? take_in_ordered : take_in,
		.params = &params,
		.binary = true,
	};
	if (in_order)
		steps[count++] = (struct pgsql_step){ .slot = PG_AS_BEFORE,
						      .sql = "SET LOCAL enable_seqscan TO DEFAULT",
						      .params = &no_params };
	status = pr_pgsql_run_all(store, &pr_table_inbox, steps, count,
				  "taking events into the inbox", err);
	if (status == POSTROOM_DATABASE && is_refused(err)) {
		status = err->status = POSTROOM_TX_ABORTED;
		arriving->at = 0;
	}
	if (status >= 0)
		read_fates(arriving, insert->result);
	for (size_t i = 0; status >= 0 && i < count; i++)
		PQclear(steps[i].result);
	return status;
}

static bool overtakes(const struct arriving *arriving, size_t known)
{
	const struct pr_arrival *first = &arriving->arrivals[known];

	for (size_t i = known + 1; first->key && i < arriving->count; i++) {
		const struct pr_arrival *arrival = &arriving->arrivals[i];

		if (arriving->fates[i] == PR_ARRIVE_DONE && arrival->key &&
		    strcmp(arrival->key, first->key) == 0 &&
		    strcmp(arrival->topic, first->topic) == 0)
			return true;
	}
	return false;
}

/*
 * Some may have become known while we waited for whoever had them, as jobs that are
 * unfinished: only another look sees them.
 */
static bool must_look_again(const struct arriving *arriving)
{
	bool again = false;

	for (size_t i = 0; i < arriving->count; i++) {
		if (arriving->fates[i] != KNOWN || arriving->met[i])
			continue;
		arriving->met[i] = true;
		again |= overtakes(arriving, i);
	}
	return again;
}

static int write_down_in_order(struct pgsql_store *store, struct arriving *arriving,
			       struct pr_err *err)
{
	int status = write_down(store, arriving, err);

	while (status >= 0 && arriving->done && arriving->order != PR_ORDER_NONE &&
	       must_look_again(arriving)) {
		store->base.ops->rollback(&store->base);
		status = write_down(store, arriving, err);
	}
	return status;
}

static int run_statement(struct pgsql_store *store, struct arriving *arriving, struct pr_err *err)
{
	size_t count = 0;
	int status;

	for (size_t i = 0; arriving->statement && i < arriving->count; i++) {
		const struct pr_arrival *arrival = &arriving->arrivals[i];

		if (arriving->fates[i] != PR_ARRIVE_DONE)
			continue;
		arriving->run[count] = i;
		arriving->events[count++] = pr_arrival_effect(arrival);
	}
	arriving->running.events = arriving->events;
	arriving->running.count = count;
	status = pr_pgsql_run_statement(store, &arriving->running, err);
	if (status == POSTROOM_TX_ABORTED && count > 0)
		arriving->at = arriving->run[arriving->running.at];
	return status;
}

static int take_in_once(struct pgsql_store *store, struct arriving *arriving, struct pr_err *err)
{
	int status;

	arriving->at = arriving->first;
	arriving->running.late = false;
	if (arriving->done && arriving->statement &&
	    pr_pgsql_know_statement(store, arriving->statement, err) < 0)
		return err->status;
	status = write_down_in_order(store, arriving, err);
	if (status >= 0 && arriving->done)
		status = run_statement(store, arriving, err);
	if (status < 0 && arriving->done)
		store->base.ops->rollback(&store->base);
	return status;
}

static int take_all_in(struct pgsql_store *store, struct arriving *arriving, size_t *ret_at,
		       struct pr_err *err)
{
	struct pgsql_running *running = &arriving->running;
	int status, tries = 0;

	for (;;) {
		status = take_in_once(store, arriving, err);
		/* The commit has found a constraint broken: once more, to see by whom. */
		if (status == POSTROOM_TX_ABORTED && running->late && running->count > 1 &&
		    !running->careful)
			running->careful = true;
		else if (!pr_pgsql_try_again(store, &status, tries++, err))
			break;
	}
	if (status == POSTROOM_TX_ABORTED)
		*ret_at = arriving->at;
	return status;
}

int pr_pgsql_take_in(struct postroom_store *base, const char *handler, const char *statement,
		     enum pr_in_order order, struct pr_arrival *arrivals, size_t count,
		     size_t *ret_at, struct pr_err *err)
{
	struct pgsql_store *store = pgsql_store(base);
	struct arriving arriving = { .handler = handler,
				     .statement = statement,
				     .order = order,
				     .arrivals = arrivals,
				     .count = count };
	int status = POSTROOM_OK;

	for (size_t i = count; i-- > 0;) {
		if (arrivals[i].how != PR_ARRIVE_DONE)
			continue;
		arriving.done = true;
		arriving.first = i;
	}
	arriving.fates = reallocarray(NULL, count + 1, sizeof(*arriving.fates));
	arriving.met = calloc(count + 1, sizeof(*arriving.met));
	arriving.run = reallocarray(NULL, count + 1, sizeof(*arriving.run));
	arriving.events = reallocarray(NULL, count + 1, sizeof(*arriving.events));
	if (!arriving.fates || !arriving.met || !arriving.run || !arriving.events)
		status = pr_err_nomem(err);
	if (status >= 0)
		status = take_all_in(store, &arriving, ret_at, err);
	for (size_t i = 0; status >= 0 && i < count; i++) {
		arrivals[i].known = arriving.fates[i] == KNOWN;
		arrivals[i].waits = arrivals[i].how == PR_ARRIVE_DONE &&
				    arriving.fates[i] == PR_ARRIVE_PENDING;
	}
	free(arriving.fates);
	free(arriving.met);
	free(arriving.run);
	free(arriving.events);
	return status;
}

#define PROGRESS                                                                            \
	"UPDATE {schema}{table} SET steps = CASE WHEN $4::text IS NULL THEN steps "          \
	"ELSE steps || jsonb_build_object($4::text, jsonb_build_object('result', $5::jsonb, " \
	"'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', "                               \
	"'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))) END, "                                       \
	"checkpoint = coalesce($6::jsonb, checkpoint), updated_at = clock_timestamp() "      \
	"WHERE id = $1 AND handler_name = $2 AND claims = $3::bigint AND status = '{active}'"

int pr_pgsql_progress(struct postroom_store *base, const struct pr_progress *progress,
		      struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	struct pgsql_params params = { 0 };

	pr_pgsql_text(&params, progress->id);
	pr_pgsql_text(&params, progress->handler);
	pr_pgsql_number(&params, progress->fence);
	pr_pgsql_text(&params, progress->step);
	pr_pgsql_text(&params, progress->result);
	pr_pgsql_text(&params, progress->checkpoint);
	result = pr_pgsql_run(pgsql_store(base), PG_PROGRESS, &pr_table_inbox, PROGRESS, &params,
			      false, "writing down what a job has done", err);
	if (!result)
		return err->status;
	return strcmp(PQcmdTuples(result), "1") == 0 ? POSTROOM_OK : pr_store_lease_lost(1, 1, err);
}
