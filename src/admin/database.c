/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that has the server's store handle.
 *
 * 1. A request is with one thread at a time: the one that serves suspends its connection before
 *    it submits it, and this one resumes it when it is done with it.
 * 2. Every query has a deadline, and a database that is down is tried once per second: a request
 *    is always answered.
 * 3. Queued requests are answered when the server ends. A suspended connection would keep the
 *    server from ending.
 */
#include "admin/server.h"

#include "base/time.h"

#include <microhttpd.h>
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
		.until_us = pr_mono_us() + PR_ADMIN_QUERY_MS * 1000,
		.stop = &database->stop,
	};
	int status;

	if (pr_mono_us() < database->retry_us)
		return;
	pr_err_clear(&database->failure);
	status = pr_store_open(&config, &database->store, &database->failure);
	if (status >= 0) {
		database->store->until_us = config.until_us;
		status = database->store->ops->check_schema(database->store, &database->failure);
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

/* A connection that has failed is not used again. */
static void look_at_store(struct pr_admin_database *database,
			  const struct pr_admin_request *request)
{
	if (!database->store)
		return;
	if (request->answer.code != 503) {
		atomic_store(&database->answered_us, pr_mono_us());
		return;
	}
	atomic_store(&database->answered_us, 0);
	pr_store_close(database->store);
	database->store = NULL;
}

static void serve(struct pr_admin_database *database, struct pr_admin_request *request)
{
	if (request->export)
		pr_export_continue(request);
	else
		request->route->handle(request);
	look_at_store(database, request);
	pr_log_flush(&database->log);
}

static struct pr_admin_request *next_request(struct pr_admin_database *database, bool *ret_ending)
{
	struct pr_admin_request *request;

	pthread_mutex_lock(&database->lock);
	while (!database->first && !database->ending)
		pthread_cond_wait(&database->wanted, &database->lock);
	request = database->first;
	if (request) {
		database->first = request->next;
		if (!database->first)
			database->last = &database->first;
	}
	*ret_ending = database->ending;
	pthread_mutex_unlock(&database->lock);
	return request;
}

static void *run(void *context)
{
	struct pr_admin_database *database = context;
	struct pr_admin_request *request;
	bool ending;

	while ((request = next_request(database, &ending))) {
		if (ending)
			pr_request_refuse(request, 503, "stopping", "the server is stopping");
		else
			serve(database, request);
		request->step = PR_STEP_DONE;
		MHD_resume_connection(request->connection);
	}
	pr_store_close(database->store);
	database->store = NULL;
	return NULL;
}

bool pr_database_submit(struct pr_admin *admin, struct pr_admin_request *request)
{
	struct pr_admin_database *database = &admin->database;
	bool ending;

	pthread_mutex_lock(&database->lock);
	ending = database->ending;
	if (!ending) {
		request->step = PR_STEP_QUEUED;
		request->next = NULL;
		MHD_suspend_connection(request->connection);
		*database->last = request;
		database->last = &request->next;
		pthread_cond_signal(&database->wanted);
	}
	pthread_mutex_unlock(&database->lock);
	return !ending;
}

int pr_database_open(struct pr_admin *admin, const struct pr_relay_config *host, struct pr_err *err)
{
	struct pr_admin_database *database = &admin->database;
	int status = pr_stop_init(&database->stop, err);

	if (status < 0) {
		database->stop.fd = database->stop.event = -1;
		return status;
	}
	database->url = strdup(host->url);
	database->schema = host->schema ? strdup(host->schema) : NULL;
	if (!database->url || (host->schema && !database->schema))
		return pr_err_nomem(err);
	if (pthread_create(&database->thread, NULL, run, database) != 0)
		return pr_err_set(err, POSTROOM_NOMEM,
				  "admin: cannot start a thread: no resources left");
	pthread_setname_np(database->thread, "admin store");
	database->started = true;
	return POSTROOM_OK;
}

void pr_database_end(struct pr_admin_database *database)
{
	if (!database->started)
		return;
	pthread_mutex_lock(&database->lock);
	database->ending = true;
	pthread_cond_signal(&database->wanted);
	pthread_mutex_unlock(&database->lock);
	pr_stop_request(&database->stop, 0);
	pthread_join(database->thread, NULL);
	database->started = false;
}

void pr_database_close(struct pr_admin_database *database)
{
	pr_database_end(database);
	pr_status_cache_free(database->cache);
	pr_stop_release(&database->stop);
	pr_log_release(&database->log);
	pthread_cond_destroy(&database->wanted);
	pthread_mutex_destroy(&database->lock);
	free(database->url);
	free(database->schema);
}
