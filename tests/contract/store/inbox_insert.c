/* SPDX-License-Identifier: Apache-2.0 */
/* Events that come into the inbox with their effect, and the progress that jobs record (N2, J1, J2, D6). */
#include "contract/store/jobs.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "base/json.h"
#pragma GCC diagnostic pop

TEST(N2_an_event_takes_effect_once_with_its_row)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "e1", .key = "k"),
		ARRIVAL(.id = "e2"),
		ARRIVAL(.id = "e1", .key = "k"),
	};

	ledger_make();
	taken_in(false, events, 3);
	CHECK(!events[0].duplicate && !events[1].duplicate && events[2].duplicate);
	CHECK_INT(ledger(), 2);
	CHECK_INT(jobs("completed"), 2);
	CHECK_INT(number(app, "SELECT count(*) FROM ledger WHERE id = 'e1' AND amount = 7 "
			      "AND topic = 't' AND key = 'k' AND header = 'v'"),
		  1);
	CHECK_INT(number(app, "SELECT count(*) FROM ledger WHERE id = 'e2' AND key IS NULL"), 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox WHERE processed_at IS NULL"), 0);
	taken_in(false, events, 3);
	CHECK(events[0].duplicate && events[1].duplicate && events[2].duplicate);
	CHECK_INT(ledger(), 2);
	/* By another handler it is handled as well. */
	sql(app, "DELETE FROM ledger");
	CHECK_INT(store->ops->inbox_insert(
			  store,
			  &(struct pr_inbox_insert){ "g", ledger_statement(), false, events, 2 },
			  &(size_t){ 0 }, &(struct pr_err){ 0 }),
		  POSTROOM_OK);
	CHECK_INT(ledger(), 2);
	CHECK_STR(jobs_done(false), "");
}

TEST(N2_failed_statement_rolls_back_and_names_its_event)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "e0", .how = PR_INSERT_PENDING),
		ARRIVAL(.id = "e1"),
		ARRIVAL(.id = "e2"),
		ARRIVAL(.id = "e3"),
	};
	struct pr_err err = { 0 };
	size_t at = 99;

	ledger_make();
	sql(app, "INSERT INTO ledger (id) VALUES ('e2')");
	CHECK_INT(inbox_insert(false, events, 4, &at, &err), POSTROOM_TX_ABORTED);
	CHECK_INT(at, 2);
	CHECK_CONTAINS(err.text, "ledger");
	CHECK_INT(ledger(), 1);
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
	events[2].how = PR_INSERT_PENDING;
	taken_in(false, events, 4);
	CHECK_INT(ledger(), 3);
	CHECK_INT(jobs("completed"), 2);
	CHECK_INT(jobs("pending"), 2);
}

TEST(N2_event_refused_by_the_table_is_identified)
{
	static char long_id[1026];
	struct pr_incoming_event event;
	struct pr_err err = { 0 };
	size_t at = 99;

	ledger_make();
	memset(long_id, 'a', 1025);
	event = ARRIVAL(.id = long_id);
	CHECK_INT(inbox_insert(false, &event, 1, &at, &err), POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
	CHECK_CONTAINS(err.text, "id: 1 to 1024 bytes");
	INSERT_EVENTS(false, ARRIVAL(.id = "e"));
	CHECK_INT(ledger(), 1);
}

TEST(N2_events_are_inserted_completed_pending_failed_or_dead)
{
	struct postroom_batch batch = { 0 };

	ledger_make();
	INSERT_EVENTS(
		false, ARRIVAL(.id = "done"), ARRIVAL(.id = "job", .how = PR_INSERT_PENDING),
		ARRIVAL(.id = "failed", .how = PR_INSERT_PENDING, .attempts = 2,
			.delay_ms = 3600 * 1000, .error = "no luck"),
		ARRIVAL(.id = "dead", .how = PR_INSERT_DEAD, .attempts = 1, .error = "no sense"));
	CHECK_INT(ledger(), 1);
	CHECK_STR(job_status("done"), "completed");
	CHECK_STR(job_status("dead"), "dead");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox WHERE id = 'dead'"), "no sense");
	CHECK_STR(text(app, "SELECT last_error FROM postroom_inbox WHERE id = 'failed'"),
		  "no luck");
	CHECK_STR(jobs_done(false), "job ");
	CHECK_STR(job_status("failed"), "pending");
	jobs_shift("next_attempt_at", -7200);
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "failed ");
	CHECK_INT(batch.items[0].attempt, 3);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_STR(job_status("failed"), "dead");
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h",
							.id = "dead")),
		  POSTROOM_OK);
	CHECK_STR(jobs_done(false), "dead ");
	pr_batch_release(&batch);
}

TEST(D6_events_are_numbered_in_order_of_receipt)
{
	static const char *const came[] = { "c", "b", "a", "d" };

	ledger_make();
	INSERT_EVENTS(false, ARRIVAL(.id = "c"), ARRIVAL(.id = "b", .how = PR_INSERT_PENDING),
		      ARRIVAL(.id = "a"), ARRIVAL(.id = "d"));
	for (int i = 0; i < 4; i++)
		CHECK_STR(text(app, "SELECT id FROM postroom_inbox ORDER BY seq LIMIT 1 OFFSET %d",
			       i),
			  came[i]);
}

TEST(D6_ordered_event_waits_behind_unfinished_event_of_its_key)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_PENDING, .attempts = 1,
			.delay_ms = 3600 * 1000, .error = "no"),
		ARRIVAL(.id = "k2", .key = "k"),
		ARRIVAL(.id = "l1", .key = "l"),
		ARRIVAL(.id = "u1", .key = "k", .topic = "u"),
		ARRIVAL(.id = "free"),
	};
	struct pr_incoming_event later = ARRIVAL(.id = "k3", .key = "k");

	ledger_make();
	taken_in(true, events, 5);
	CHECK(!events[0].waits && events[1].waits && !events[2].waits && !events[3].waits &&
	      !events[4].waits);
	CHECK_INT(ledger(), 3);
	taken_in(true, &later, 1);
	CHECK(later.waits);
	taken_in(true, &later, 1);
	CHECK(later.duplicate && !later.waits);
	CHECK_INT(ledger(), 3);
	CHECK_INT(jobs("pending"), 3);
	CHECK_STR(jobs_done(false), "");
	jobs_shift("next_attempt_at", -7200);
	CHECK_STR(jobs_done(false), "k1 k2 k3 ");
	later = ARRIVAL(.id = "k4", .key = "k");
	taken_in(true, &later, 1);
	CHECK(!later.waits);
	CHECK_STR(job_status("k4"), "completed");
}

TEST(D6_event_waits_behind_blocking_dead_letter_of_its_key)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_DEAD, .error = "no"),
		ARRIVAL(.id = "k2", .key = "k"),
		ARRIVAL(.id = "l1", .key = "l"),
		ARRIVAL(.id = "u1", .key = "k", .topic = "u"),
	};
	struct pr_incoming_event later = ARRIVAL(.id = "k3", .key = "k");
	struct pr_incoming_event other = ARRIVAL(.id = "k3", .key = "k");
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };
	size_t at;

	ledger_make();
	taken_in(PR_ORDER_DEAD, events, 4);
	CHECK(!events[0].waits && events[1].waits && !events[2].waits && !events[3].waits);
	taken_in(PR_ORDER_DEAD, &later, 1);
	CHECK(later.waits);
	CHECK_INT(store->ops->inbox_insert(store,
					   &(struct pr_inbox_insert){ "g", ledger_statement(),
								      PR_ORDER_DEAD, &other, 1 },
					   &at, &err),
		  POSTROOM_OK);
	CHECK(!other.waits);
	CHECK_INT(ledger(), 3);
	JOBS(store, &batch, .block = true);
	CHECK_STR(jobs_in(&batch), "");
	/* A retried event joins the end of its key, as in the outbox. */
	CHECK_INT(postroom_retry(store, POSTROOM_FILTER(.table = POSTROOM_INBOX, .handler = "h",
							.id = "k1")),
		  POSTROOM_OK);
	CHECK_STR(jobs_done(false), "k2 k3 k1 ");
	later = ARRIVAL(.id = "k4", .key = "k");
	taken_in(PR_ORDER_DEAD, &later, 1);
	CHECK(!later.waits);
	pr_batch_release(&batch);
}

TEST(D6_event_passes_dead_letters_that_do_not_block)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_DEAD, .error = "no"),
		ARRIVAL(.id = "k2", .key = "k"),
	};
	struct pr_incoming_event later = ARRIVAL(.id = "k3", .key = "k");

	ledger_make();
	taken_in(PR_ORDER_UNFINISHED, events, 2);
	taken_in(PR_ORDER_UNFINISHED, &later, 1);
	CHECK(!events[1].waits && !later.waits);
	CHECK_INT(ledger(), 2);
}

TEST(D6_unordered_event_waits_for_no_other)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_PENDING),
		ARRIVAL(.id = "k2", .key = "k"),
	};

	ledger_make();
	taken_in(false, events, 2);
	CHECK(!events[1].waits);
	CHECK_STR(job_status("k2"), "completed");
}

static int apply(postroom_store *by, const struct postroom_batch *batch, struct pr_err *err)
{
	return by->ops->apply(by, ledger_statement(), batch->items, err);
}

TEST(J1_a_job_is_completed_together_with_its_effect)
{
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	ledger_make();
	job_submit("a", "{\"amount\": 5}");
	JOBS(store, &batch);
	CHECK_MSG(apply(store, &batch, &err) == POSTROOM_OK, "%s", err.text);
	CHECK_STR(job_status("a"), "completed");
	CHECK_INT(number(app, "SELECT count(*) FROM ledger WHERE id = 'a' AND amount = 5 "
			      "AND topic = 'h' AND key IS NULL"),
		  1);
	CHECK_INT(apply(store, &batch, &err), POSTROOM_LEASE_LOST);
	CHECK_INT(ledger(), 1);
	pr_batch_release(&batch);
}

TEST(J1_job_with_failed_statement_has_no_effect_and_stays_leased)
{
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	ledger_make();
	sql(app, "INSERT INTO ledger (id) VALUES ('a')");
	job_submit("a", "{\"amount\": 5}");
	JOBS(store, &batch);
	CHECK_INT(apply(store, &batch, &err), POSTROOM_TX_ABORTED);
	CHECK_CONTAINS(err.text, "ledger");
	CHECK_STR(job_status("a"), "active");
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
	CHECK_STR(job_status("a"), "pending");
	sql(app, "DELETE FROM ledger");
	jobs_shift("next_attempt_at", -7200);
	JOBS(store, &batch);
	CHECK_MSG(apply(store, &batch, &err) == POSTROOM_OK, "%s", err.text);
	CHECK_INT(ledger(), 1);
	pr_batch_release(&batch);
}

TEST(J1_worker_that_lost_its_job_has_no_effect)
{
	struct postroom_batch late = { 0 }, taken = { 0 };
	postroom_store *other = open_store();
	struct pr_err err = { 0 };

	ledger_make();
	job_submit("a", NULL);
	JOBS(store, &late);
	jobs_shift("locked_until", -24 * 3600);
	JOBS(other, &taken, .reclaim_expired = true);
	CHECK_INT(apply(store, &late, &err), POSTROOM_LEASE_LOST);
	CHECK_INT(ledger(), 0);
	CHECK_STR(job_status("a"), "active");
	CHECK_MSG(apply(other, &taken, &err) == POSTROOM_OK, "%s", err.text);
	CHECK_INT(number(app, "SELECT count(*) FROM ledger WHERE amount IS NULL"), 1);
	pr_batch_release(&late);
	pr_batch_release(&taken);
	postroom_store_close(other);
}

TEST(D6_applied_job_unblocks_its_key)
{
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	ledger_make();
	INSERT_EVENTS(true,
		      ARRIVAL(.id = "k1", .key = "k", .how = PR_INSERT_PENDING, .attempts = 1,
			      .delay_ms = 3600 * 1000, .error = "no"),
		      ARRIVAL(.id = "k2", .key = "k"));
	CHECK_STR(jobs_done(false), "");
	jobs_shift("next_attempt_at", -7200);
	JOBS(store, &batch, .limit = 1);
	CHECK_STR(jobs_in(&batch), "k1 ");
	CHECK_MSG(apply(store, &batch, &err) == POSTROOM_OK, "%s", err.text);
	CHECK_STR(jobs_done(false), "k2 ");
	pr_batch_release(&batch);
}

TEST(N2_statement_that_cannot_run_in_a_transaction_is_refused)
{
	static const char *const bad[] = {
		"",
		"-- nothing",
		"SELEC 1",
		"INSERT INTO nowhere VALUES (1)",
		"SELECT 1; SELECT 2",
		"BEGIN",
		"COMMIT",
		"ROLLBACK",
		"SAVEPOINT a",
		"RELEASE a",
		"VACUUM",
		/* written for the one, and for the other */
		"SELECT $1, $2, $3, $4, $5, $6, $7, $8",
		"SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8",
	};
	struct pr_err err = { 0 };

	ledger_make();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pr_err_clear(&err);
		CHECK_MSG(pr_store_check_statement(store, bad[i], &err) == POSTROOM_INVALID,
			  "\"%s\" was not refused: %d %s", bad[i], err.status, err.text);
		CHECK(err.text[0]);
	}
	CHECK_MSG(pr_store_check_statement(store, ledger_statement(), &err) == POSTROOM_OK, "%s",
		  err.text);
	CHECK_MSG(pr_store_check_statement(store, "DELETE FROM ledger; -- all", &err) ==
			  POSTROOM_OK,
		  "%s", err.text);
	/* To check is not to run, and leaves nothing behind. */
	CHECK_INT(ledger(), 0);
	INSERT_EVENTS(false, ARRIVAL(.id = "e"));
	CHECK_INT(ledger(), 1);
}

TEST(N2_a_statement_that_ends_the_transaction_is_a_failure)
{
	static const char *const bad[] = { "COMMIT", "ROLLBACK", "BEGIN" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct pr_incoming_event event = ARRIVAL(.id = "e");
		struct pr_err err = { 0 };
		size_t at = 99;

		CHECK_INT(store->ops->inbox_insert(
				  store, &(struct pr_inbox_insert){ "h", bad[i], false, &event, 1 },
				  &at, &err),
			  POSTROOM_TX_ABORTED);
		CHECK_INT(at, 0);
		CHECK_INT(number(app, "SELECT count(*) FROM postroom_inbox"), 0);
	}
}

static int progress(const postroom_delivery *job, const char *step, const char *result,
		    const char *checkpoint)
{
	const struct pr_progress made = { .handler = job->ns,
					  .id = job->id,
					  .fencing_token = job->fencing_token,
					  .step = step,
					  .result = result,
					  .checkpoint = checkpoint };
	struct pr_err err = { 0 };
	int status = store->ops->progress(store, &made, &err);

	CHECK_MSG(status >= 0 || status == POSTROOM_LEASE_LOST, "%s", err.text);
	return status;
}

/* Of the one job. */
struct record {
	char steps[5000];
	char checkpoint[200];
};

static int read_record(void *context, const postroom_row *row)
{
	struct record *record = context;

	snprintf(record->steps, sizeof(record->steps), "%s", row->steps);
	snprintf(record->checkpoint, sizeof(record->checkpoint), "%s",
		 row->checkpoint ? row->checkpoint : "(none)");
	return 0;
}

static struct record record(void)
{
	struct record is = { "", "" };

	CHECK_INT(
		postroom_list(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 1, read_record, &is),
		POSTROOM_OK);
	return is;
}

static bool named(struct pr_span raw, const char *name)
{
	struct pr_buf decoded = { 0 };
	bool same;

	pr_json_decode(raw, &decoded);
	same = strcmp(pr_buf_text(&decoded), name) == 0;
	pr_buf_release(&decoded);
	return same;
}

/* The member of an object, without its white space; it must be there once. */
static struct pr_span member(struct pr_span object, const char *name)
{
	struct pr_json_members walk = pr_json_members(object);
	struct pr_span at, value, found = { 0 };

	while (pr_json_next(&walk, &at, &value)) {
		if (!named(at, name))
			continue;
		CHECK_MSG(!found.data, "\"%s\" is there twice", name);
		found = value;
	}
	CHECK_MSG(found.data, "there is no \"%s\" in %.*s", name, (int)object.len, object.data);
	return found;
}

static const char *packed(struct pr_span value)
{
	static char text[1000];
	size_t len = 0;

	for (size_t i = 0; i < value.len; i++) {
		if (value.data[i] != ' ')
			text[len++] = value.data[i];
	}
	text[len] = '\0';
	return text;
}

static struct pr_span step_of(const struct record *is, const char *step)
{
	return member((struct pr_span){ is->steps, strlen(is->steps) }, step);
}

static const char *result_of(const struct record *is, const char *step)
{
	struct pr_span done = step_of(is, step), at = member(done, "at");

	CHECK_MSG(at.data[0] == '"' && at.len > 20 && at.data[11] == 'T', "%.*s", (int)at.len,
		  at.data);
	return packed(member(done, "result"));
}

TEST(J2_a_step_may_have_any_name_and_any_result)
{
	static const char *const names[] = { "plain", "a\"b", "a.b",   "$.x", "a/b", "it's",
					     "[0]",   "\\",   "schön", "\t",  "a b", "$" };
	static const char *const results[] = {
		"{\"a\":null,\"b\":{\"c\":1}}", "[1,2]", "\"x\\\"y\"", "1.50", "true", "null",
	};
	const size_t n = sizeof(names) / sizeof(names[0]), m = sizeof(results) / sizeof(results[0]);
	struct postroom_batch batch = { 0 };
	struct record is;

	job_submit("a", NULL);
	JOBS(store, &batch);
	for (size_t i = 0; i < n; i++)
		CHECK_INT(progress(batch.items, names[i], results[i % m], NULL), POSTROOM_OK);
	is = record();
	for (size_t i = 0; i < n; i++)
		CHECK_STR(result_of(&is, names[i]), results[i % m]);
	CHECK_STR(is.checkpoint, "(none)");
	/* Done again it is replaced, not merged. */
	CHECK_INT(progress(batch.items, "plain", "{\"z\":1}", NULL), POSTROOM_OK);
	CHECK_INT(progress(batch.items, "a.b", NULL, NULL), POSTROOM_OK);
	is = record();
	CHECK_STR(result_of(&is, "plain"), "{\"z\":1}");
	CHECK_STR(result_of(&is, "a.b"), "null");
	CHECK_STR(result_of(&is, "a/b"), results[4]);
	pr_batch_release(&batch);
}

TEST(J2_steps_written_by_hand_stay_unchanged)
{
	static const char *const values[] = { "\"done\"", "\"1\"", "true",    "false", "null",
					      "-7",	  "1.5",   "[\"x\"]", "{}" };
	const size_t n = sizeof(values) / sizeof(values[0]);
	struct postroom_batch batch = { 0 };
	struct record is;
	char name[2] = "a";

	job_submit("a", NULL);
	sql(app,
	    "UPDATE postroom_inbox SET steps = '{\"a\":%s,\"b\":%s,\"c\":%s,\"d\":%s,"
	    "\"e\":%s,\"f\":%s,\"g\":%s,\"h\":%s,\"i\":%s}'",
	    values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7],
	    values[8]);
	JOBS(store, &batch);
	CHECK_INT(progress(batch.items, "z", "1", NULL), POSTROOM_OK);
	is = record();
	CHECK_STR(result_of(&is, "z"), "1");
	for (size_t i = 0; i < n; i++, name[0]++)
		CHECK_STR(packed(step_of(&is, name)), values[i]);
	pr_batch_release(&batch);
}

TEST(J2_a_checkpoint_is_replaced_and_outlives_a_failure)
{
	struct postroom_batch batch = { 0 };
	struct record is;

	job_submit("a", NULL);
	JOBS(store, &batch);
	CHECK_INT(progress(batch.items, "one", "1", "{\"a\": null, \"b\": 2}"), POSTROOM_OK);
	CHECK_INT(progress(batch.items, NULL, NULL, "[3]"), POSTROOM_OK);
	CHECK_INT(progress(batch.items, "two", "2", NULL), POSTROOM_OK);
	CHECK_INT(jobs_settle(store, &batch, POSTROOM_FAILED), POSTROOM_OK);
	jobs_shift("next_attempt_at", -7200);
	JOBS(store, &batch);
	CHECK_STR(jobs_in(&batch), "a ");
	is = record();
	CHECK_STR(is.checkpoint, "[3]");
	CHECK_STR(result_of(&is, "one"), "1");
	CHECK_STR(result_of(&is, "two"), "2");
	CHECK_INT(progress(batch.items, NULL, NULL, "null"), POSTROOM_OK);
	is = record();
	CHECK_STR(is.checkpoint, "null");
	pr_batch_release(&batch);
}

TEST(J2_progress_is_written_only_by_owner_of_the_job)
{
	struct postroom_batch late = { 0 }, taken = { 0 };
	postroom_delivery unknown;
	struct record is;

	job_submit("a", NULL);
	JOBS(store, &late);
	jobs_shift("locked_until", -24 * 3600);
	JOBS(store, &taken, .reclaim_expired = true);
	CHECK_INT(progress(late.items, "late", "1", "1"), POSTROOM_LEASE_LOST);
	unknown = taken.items[0];
	unknown.id = "b";
	CHECK_INT(progress(&unknown, "none", "1", "1"), POSTROOM_LEASE_LOST);
	CHECK_INT(progress(taken.items, "one", "1", NULL), POSTROOM_OK);
	CHECK_INT(jobs_settle(store, &taken, POSTROOM_DELIVERED), POSTROOM_OK);
	CHECK_INT(progress(taken.items, "two", "1", "1"), POSTROOM_LEASE_LOST);
	is = record();
	CHECK_STR(is.checkpoint, "(none)");
	CHECK_STR(result_of(&is, "one"), "1");
	CHECK(!strstr(is.steps, "late") && !strstr(is.steps, "two"));
	pr_batch_release(&late);
	pr_batch_release(&taken);
}

/* It would count for hours. */
#define ENDLESS                                                                                    \
	"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) "    \
	"INSERT INTO ledger (id, amount) SELECT 'late', max(i) FROM n"

TEST(J3_statement_past_its_timeout_is_cancelled_and_rolled_back)
{
	const struct pr_store_config config = { .url = url,
						.busy_wait_ms = -1,
						.statement_ms = 1000 };
	struct pr_incoming_event event = ARRIVAL(.id = "e");
	struct postroom_batch batch = { 0 };
	postroom_store *hurried = NULL;
	struct pr_err err = { 0 };
	size_t at = 99;

	ledger_make();
	job_submit("a", NULL);
	CHECK_MSG(pr_store_open(&config, &hurried, &err) >= 0, "%s", err.text);
	CHECK_INT(hurried->ops->inbox_insert(
			  hurried, &(struct pr_inbox_insert){ "h", ENDLESS, false, &event, 1 }, &at,
			  &err),
		  POSTROOM_TX_ABORTED);
	CHECK_INT(at, 0);
	JOBS(hurried, &batch);
	CHECK_STR(jobs_in(&batch), "a ");
	CHECK_INT(hurried->ops->apply(hurried, ENDLESS, batch.items, &err), POSTROOM_TX_ABORTED);
	CHECK_STR(job_status("a"), "active");
	CHECK_INT(jobs("completed") + ledger(), 0);
	CHECK_MSG(apply(hurried, &batch, &err) == POSTROOM_OK, "%s", err.text);
	CHECK_INT(ledger(), 1);
	pr_batch_release(&batch);
	postroom_store_close(hurried);
}
