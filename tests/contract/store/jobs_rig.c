/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/store/jobs.h"

void job_submit(const char *id, const char *payload)
{
	int status = postroom_inbox_submit(app->box, "h", id, payload, NULL);

	CHECK_MSG(status == POSTROOM_OK, "submit %s: %d %s", id, status, postroom_errmsg(app->box));
}

void jobs_claim(postroom_store *by, struct postroom_batch *batch, struct pr_claim claim)
{
	struct pr_err err = { 0 };

	claim.limit = claim.limit ? claim.limit : 10;
	claim.max_attempts = claim.max_attempts ? claim.max_attempts : 3;
	claim.max_bytes = 1 << 20;
	claim.lease_ms = 30000;
	pr_batch_reset(batch);
	CHECK_MSG(pr_store_claim(by, &pr_table_inbox, &claim, batch, &err) >= 0, "%s", err.text);
}

const char *jobs_in(const struct postroom_batch *batch)
{
	static char ids[1000];
	size_t len = 0;

	ids[0] = '\0';
	for (size_t i = 0; i < batch->count; i++)
		len += (size_t)snprintf(ids + len, sizeof(ids) - len, "%s ", batch->items[i].id);
	return ids;
}

int jobs_settle(postroom_store *by, struct postroom_batch *batch, postroom_verdict verdict)
{
	const struct pr_policy policy = { .max_attempts = 3,
					  .base_delay_ms = 3600 * 1000,
					  .max_delay_ms = 3600 * 1000,
					  .max_error_length = 100 };
	struct pr_err err = { 0 };
	int status;

	for (size_t i = 0; i < batch->count; i++) {
		batch->items[i].verdict = verdict;
		batch->items[i].retry_in_ms = -1;
		batch->items[i].reason = verdict == POSTROOM_DELIVERED ? NULL : "no";
	}
	status = pr_store_settle(by, &pr_table_inbox,
				 &(struct pr_settle){ batch->items, batch->count, &policy }, &err);
	CHECK_MSG(status >= 0 || status == POSTROOM_LEASE_LOST, "%s", err.text);
	return status;
}

const char *jobs_done(bool unordered)
{
	static char done[1000];
	struct postroom_batch batch = { 0 };
	int idle = 0;

	done[0] = '\0';
	/* Jobs that a settle has unblocked may need one more claim to be found. */
	while (idle < 3) {
		size_t len = strlen(done);

		JOBS(store, &batch, .unordered = unordered);
		snprintf(done + len, sizeof(done) - len, "%s", jobs_in(&batch));
		idle = batch.count ? 0 : idle + 1;
		if (batch.count)
			CHECK_INT(jobs_settle(store, &batch, POSTROOM_DELIVERED), POSTROOM_OK);
	}
	pr_batch_release(&batch);
	return done;
}

const char *job_status(const char *id)
{
	return text(app, "SELECT status FROM postroom_inbox WHERE id = '%s'", id);
}

int64_t jobs(const char *status)
{
	return number(app, "SELECT count(*) FROM postroom_inbox WHERE status = '%s'", status);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

void jobs_shift(const char *column, int64_t seconds)
{
	char expression[200];

	snprintf(expression, sizeof(expression), backend->shift, column,
		 (long long)seconds * 1000000);
	sql(app, "UPDATE postroom_inbox SET %s = %s WHERE %s IS NOT NULL", column, expression,
	    column);
}

#pragma GCC diagnostic pop

struct pr_incoming_event incoming(struct pr_incoming_event event)
{
	static const char payload[] = "{\"amount\": 7}";

	event.topic = event.topic ? event.topic : "t";
	event.content_type = event.content_type ? event.content_type : "application/json";
	event.headers = event.headers ? event.headers : "{\"h\": \"v\"}";
	if (!event.payload.data && !event.body.data)
		event.payload = (struct pr_span){ payload, strlen(payload) };
	return event;
}

int inbox_insert(enum pr_insert_order order, struct pr_incoming_event *incoming_events,
		 size_t count, size_t *ret_at, struct pr_err *err)
{
	return store->ops->inbox_insert(
		store,
		&(struct pr_inbox_insert){ "h", ledger_statement(), order, incoming_events, count },
		ret_at, err);
}

void taken_in(enum pr_insert_order order, struct pr_incoming_event *incoming_events, size_t count)
{
	struct pr_err err = { 0 };
	size_t at = 0;
	int status = inbox_insert(order, incoming_events, count, &at, &err);

	CHECK_MSG(status >= 0, "taking in: %d %s", status, err.text);
}

void ledger_make(void)
{
	sql(app, "CREATE TABLE ledger (id text PRIMARY KEY, amount int, topic text, key text, "
		 "header text)");
}

const char *ledger_statement(void)
{
	if (backend == &backend_sqlite)
		return "INSERT INTO ledger VALUES (?2, ?1 ->> 'amount', ?3, ?4, ?5 ->> 'h')";
	return "INSERT INTO ledger VALUES ($2, ($1 ->> 'amount')::int, $3, $4, $5 ->> 'h')";
}

int64_t ledger(void)
{
	return number(app, "SELECT count(*) FROM ledger");
}
