/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations of the running server. */
#ifndef PR_ADMIN_SERVER_H
#define PR_ADMIN_SERVER_H

#include "admin/access.h"
#include "base/log.h"
#include "base/stop.h"
#include "relay/metrics.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>

/* Time limit of one query. */
#define PR_ADMIN_QUERY_MS 5000

struct MHD_Daemon;

/* The thread that has the store. */
struct pr_admin_database {
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of the next four */
	pthread_cond_t wanted;
	struct pr_admin_request *first, **last; /* that wait for it */
	bool ending;
	struct pr_stop stop; /* ends its waits */

	/* The rest is the thread's own, but for the last. */
	char *url, *schema;
	struct postroom_store *store; /* NULL: not connected */
	int64_t retry_us;	      /* monotonic: not to be connected before */
	struct pr_err failure;	      /* why it could not be connected */
	struct pr_log log;
	struct pr_status_cache *cache;
	_Atomic int64_t answered_us; /* monotonic: when the store last answered; 0: it did not */
};

struct pr_admin {
	struct pr_relay *relay;
	struct MHD_Daemon *daemon;
	pthread_mutex_t lock; /* of settings */
	struct pr_admin_settings *settings;
	struct pr_admin_database database;
	struct pr_log log;  /* of the thread that serves */
	int64_t refused_us; /* when a refusal was last logged */
};

/* database.c */
int pr_database_open(struct pr_admin *admin, const struct pr_relay_config *host,
		     struct pr_err *err);
/* Has the thread of the store go on with a request, whose connection is suspended. False: too late. */
bool pr_database_submit(struct pr_admin *admin, struct pr_admin_request *request);
/* Answers all that is queued and ends the thread; nothing can be submitted any more. */
void pr_database_end(struct pr_admin_database *database);
void pr_database_close(struct pr_admin_database *database);
/* For handlers: the store, connected, with a deadline. NULL: the answer says why not. */
struct postroom_store *pr_database_store(struct pr_admin_request *request);

/* api_status.c */
void pr_api_stats(struct pr_admin_request *request);
void pr_api_topics(struct pr_admin_request *request);
void pr_api_sinks(struct pr_admin_request *request);
void pr_api_workers(struct pr_admin_request *request);
void pr_status_cache_free(struct pr_status_cache *cache);

/* api_messages.c: the table is the route's. */
void pr_api_list(struct pr_admin_request *request);
void pr_api_show(struct pr_admin_request *request);
void pr_api_groups(struct pr_admin_request *request);
/* The columns of a row without its content. */
void pr_put_row_columns(struct pr_buf *out, const postroom_row *row, bool inbox);
/* Appends headers, payload, body, checkpoint and steps, or that they are hidden. */
void pr_put_row_content(struct pr_buf *out, const postroom_row *row, bool inbox, bool shown);
/* The filter of a request, with table, id and handler from its route and path. */
postroom_filter pr_request_filter(const struct pr_admin_request *request);

/* api_actions.c */
void pr_api_retry_one(struct pr_admin_request *request);
void pr_api_delete_one(struct pr_admin_request *request);
void pr_api_retry(struct pr_admin_request *request);
void pr_api_delete(struct pr_admin_request *request);

/* export.c */
void pr_api_export(struct pr_admin_request *request);
/* In the thread of the store: the next part. */
void pr_export_continue(struct pr_admin_request *request);
/* For the thread that serves: bytes of the export, or one of the two, or 0: it was submitted. */
#define PR_EXPORT_END (-1)
#define PR_EXPORT_FAILED (-2)
ssize_t pr_export_read(struct pr_admin_request *request, char *out, size_t size);
void pr_export_free(struct pr_admin_export *export);

/* health.c */
void pr_api_livez(struct pr_admin_request *request);
void pr_api_readyz(struct pr_admin_request *request);
/* Answers without the store, from any thread. False: it needs the store. */
bool pr_readyz_answer(struct pr_admin_request *request);
void pr_api_healthz(struct pr_admin_request *request);
void pr_api_metrics(struct pr_admin_request *request);
/* Members "status" and "reasons"; returns the level: 0 healthy, 1 degraded, 2 unhealthy. */
int pr_put_health(struct pr_admin *admin, const struct pr_admin_settings *settings,
		  struct pr_buf *out);
/* For pr_metrics_set_health(). */
void pr_health_levels(void *context, int levels[PR_HEALTH_COMPONENTS]);

/* page.c, openapi.c */
void pr_api_page(struct pr_admin_request *request);
void pr_api_openapi(struct pr_admin_request *request);

#endif
