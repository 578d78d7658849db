/* SPDX-License-Identifier: Apache-2.0 */
/* Tenant and correlation id in the inbox: what comes with an event or a command reaches its handler. */
#include "contract/store/jobs.h"

#include <postroom/job.h>

#define TENANT "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11"
#define CORRELATION "order 7/\xc3\xa9"

static const char *context_statement(void)
{
	if (backend == &backend_sqlite)
		return "INSERT INTO contexts VALUES (?2, ?6, ?7)";
	return "INSERT INTO contexts VALUES ($2, $6, $7)";
}

static void make_contexts(void)
{
	sql(app, backend == &backend_sqlite
			 ? "CREATE TABLE contexts (id text, tenant text, correlation text)"
			 : "CREATE TABLE contexts (id text, tenant uuid, correlation text)");
}

static void insert_events(const char *statement, struct pr_incoming_event *incoming_events,
			  size_t count)
{
	struct pr_err err = { 0 };
	size_t at = 0;
	int status = store->ops->inbox_insert(store,
					      &(struct pr_inbox_insert){ "h", statement,
									 PR_ORDER_UNFINISHED,
									 incoming_events, count },
					      &at, &err);

	CHECK_MSG(status >= 0, "%d %s", status, err.text);
}

static void check_contexts(void)
{
	CHECK_INT(number(app, "SELECT count(*) FROM contexts"), 2);
	CHECK_STR(text(app, "SELECT tenant FROM contexts WHERE id = 'a'"), TENANT);
	CHECK_STR(text(app, "SELECT correlation FROM contexts WHERE id = 'a'"), CORRELATION);
	CHECK_INT(number(app, "SELECT count(*) FROM contexts WHERE id = 'b' AND tenant IS NULL "
			      "AND correlation IS NULL"),
		  1);
}

TEST(N2_statement_gets_tenant_and_correlation_id_of_incoming_events)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "a", .key = "k", .how = PR_INSERT_COMPLETED, .tenant_id = TENANT,
			.correlation_id = CORRELATION),
		ARRIVAL(.id = "b", .key = "k", .how = PR_INSERT_COMPLETED),
	};

	make_contexts();
	insert_events(context_statement(), events, 2);
	check_contexts();
}

TEST(J1_statement_gets_tenant_and_correlation_id_of_jobs)
{
	struct pr_incoming_event events[] = {
		ARRIVAL(.id = "a", .how = PR_INSERT_PENDING, .tenant_id = TENANT,
			.correlation_id = CORRELATION),
		ARRIVAL(.id = "b", .how = PR_INSERT_PENDING),
	};
	struct postroom_batch batch = { 0 };
	struct pr_err err = { 0 };

	make_contexts();
	insert_events(NULL, events, 2);
	JOBS(store, &batch);
	CHECK_INT(batch.count, 2);
	for (size_t i = 0; i < batch.count; i++)
		CHECK_MSG(store->ops->apply(store, context_statement(), &batch.items[i], &err) >= 0,
			  "%s", err.text);
	pr_batch_release(&batch);
	check_contexts();
}

static int check_row(void *context, const postroom_row *row)
{
	int *found = context;

	CHECK_STR(row->tenant_id, TENANT);
	CHECK_STR(row->correlation_id, CORRELATION);
	++*found;
	return 0;
}

TEST(J1_submitted_command_carries_tenant_and_correlation_id)
{
	postroom_inbox_state state;
	postroom_job *job;
	int found = 0;

	CHECK_INT(postroom_inbox_submit_command(
			  app->box,
			  POSTROOM_COMMAND(.handler = "h", .id = "c-1", .payload = "{}",
					   .tenant_id = "0B9AC2F6-3F0E-4D7E-9A43-5A1F2A6F0C11",
					   .correlation_id = CORRELATION),
			  &state),
		  POSTROOM_OK);
	CHECK_INT(state, POSTROOM_INBOX_PENDING);
	CHECK_INT(postroom_list(store, POSTROOM_FILTER(.table = POSTROOM_INBOX), 10, check_row,
				&found),
		  POSTROOM_OK);
	CHECK_INT(found, 1);
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "h"), &job), POSTROOM_OK);
	CHECK_STR(postroom_job_event(job)->tenant_id, TENANT);
	CHECK_STR(postroom_job_event(job)->correlation_id, CORRELATION);
	CHECK_INT(postroom_job_finish(job), POSTROOM_OK);
	postroom_job_free(job);
}

TEST(J1_command_without_tenant_and_correlation_id_has_none)
{
	postroom_job *job;

	job_submit("c-1", "{}");
	CHECK_INT(postroom_job_begin(store, POSTROOM_JOB(.handler = "h"), &job), POSTROOM_OK);
	CHECK(!postroom_job_event(job)->tenant_id && !postroom_job_event(job)->correlation_id);
	postroom_job_free(job);
}

/* And the caller's transaction is still usable. */
TEST(N3_command_with_bad_tenant_or_correlation_id_is_refused_before_the_write)
{
	static const postroom_command bad[] = {
		{ .tenant_id = "acme" },      { .tenant_id = "" },
		{ .correlation_id = "" },     { .correlation_id = "a\r\nb" },
		{ .correlation_id = "\xff" },
	};

	begin(app);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		postroom_command command = bad[i];

		command.size = sizeof(command);
		command.handler = "h";
		command.id = "c-1";
		CHECK_INT(postroom_inbox_submit_command(app->box, &command, NULL),
			  POSTROOM_INVALID);
		CHECK_CONTAINS(postroom_errmsg(app->box),
			       command.tenant_id ? "tenant_id" : "correlation_id");
	}
	CHECK_INT(postroom_inbox_submit_command(
			  app->box, &(postroom_command){ .handler = "h", .id = "c-1" }, NULL),
		  POSTROOM_INVALID);
	CHECK_CONTAINS(postroom_errmsg(app->box), "POSTROOM_COMMAND");
	job_submit("c-2", "{}");
	commit(app);
	CHECK_INT(jobs("pending"), 1);
}

TEST(N3_plain_insert_of_a_bad_tenant_into_the_inbox_is_refused)
{
	static const char *const bad[] = { "acme", "", "0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c1g" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(refused(app,
			      "INSERT INTO postroom_inbox (id, handler_name, tenant_id) "
			      "VALUES ('a', 'h', '%s')",
			      bad[i]));
	CHECK(refused(app, "INSERT INTO postroom_inbox (id, handler_name, correlation_id) "
			   "VALUES ('a', 'h', '')"));
	sql(app, "INSERT INTO postroom_inbox (id, handler_name, tenant_id, correlation_id) "
		 "VALUES ('a', 'h', '" TENANT "', '" CORRELATION "')");
	CHECK_INT(jobs("pending"), 1);
}

ON_ONE(N3_submit_function_takes_tenant_and_correlation_id, backend_pgsql)
{
	sql(app, "SELECT postroom_inbox_submit('h', 'a', '{}', tenant_id => '" TENANT "', "
		 "correlation_id => 'c')");
	CHECK_STR(text(app, "SELECT tenant_id || ' ' || correlation_id FROM postroom_inbox"),
		  TENANT " c");
}
