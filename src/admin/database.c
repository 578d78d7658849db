/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's store handle, which one thread has.
 *
 * 1. Every query has a deadline, and a database that is down is tried once per second: a request
 *    is always answered.
 */
#include "admin/server.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_US 1000000
#define BUSY_WAIT_MS 2000

static void connect_store(struct pr_admin_database *database)
{
	const struct pr_store_config config = {
		.url = database->url,
		.schema = database->schema,
		.busy_wait_ms = BUSY_WAIT_MS,
		.answer_ms = PR_ADMIN_QUERY_MS,
		.statement_ms = PR_ADMIN_QUERY_MS,
		.query_ms = PR_ADMIN_STATEMENT_MS,
		.until_us = pr_mono_us() + PR_ADMIN_QUERY_MS * 1000,
		.stop = &database->queue.stop,
	};
	int status;

	if (pr_mono_us() < database->retry_us)
		return;
	pr_err_clear(&database->failure);
	status = pr_store_open(&config, &database->store, &database->failure);
	if (status >= 0) {
		database->store->until_us = config.until_us;
		status = database->store->ops->check_schema(database->store, PR_SCHEMA_COMPLETE,
							    &database->failure);
	}
	if (status >= 0)
		return;
	pr_store_close(database->store);
	database->store = NULL;
	database->retry_us = pr_mono_us() + RETRY_US;
}

struct postroom_store *pr_database_store(struct pr_admin_request *request)
{
	struct pr_admin_database *database = &request->admin->database;

	if (!database->store)
		connect_store(database);
	if (!database->store) {
		pr_request_fail(request, &database->failure);
		if (request->answer.code == 400 || request->answer.code == 404)
			pr_request_refuse(request, 503, "database_unavailable", "%s",
					  database->failure.text);
		return NULL;
	}
	database->store->until_us = pr_mono_us() + PR_ADMIN_QUERY_MS * 1000;
	return database->store;
}

/*
 * A connection that has failed is not used again. A query that took too long says nothing about the
 * database: clients must not make the relay unready with slow queries.
 */
static void check_store(struct pr_admin_database *database, const struct pr_admin_request *request)
{
	const struct pr_admin_answer *answer = &request->answer;
	bool answered = answer->code != 503 || answer->failed == POSTROOM_BUSY;

	if (!database->store)
		return;
	atomic_store(&database->answered_us, answered ? pr_mono_us() : 0);
	if (answer->code != 503)
		return;
	pr_store_close(database->store);
	database->store = NULL;
}

void pr_database_serve(struct pr_admin_request *request)
{
	struct pr_admin_database *database = &request->admin->database;

	if (request->export)
		pr_export_continue(request);
	else
		request->route->handle(request);
	check_store(database, request);
	pr_log_flush(&database->log);
}

int pr_database_open(struct pr_admin *admin, const struct pr_relay_config *host, struct pr_err *err)
{
	struct pr_admin_database *database = &admin->database;

	database->url = strdup(host->url);
	database->schema = host->schema ? strdup(host->schema) : NULL;
	if (!database->url || (host->schema && !database->schema))
		return pr_err_nomem(err);
	return pr_queue_start(&database->queue, "admin store", err);
}

void pr_database_end(struct pr_admin_database *database)
{
	pr_queue_end(&database->queue, 0);
	pr_store_close(database->store);
	database->store = NULL;
}

void pr_database_close(struct pr_admin_database *database)
{
	pr_database_end(database);
	pr_status_cache_free(database->cache);
	pr_queue_release(&database->queue);
	pr_log_release(&database->log);
	free(database->url);
	free(database->schema);
}
