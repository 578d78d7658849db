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
/* The server cancels a statement before that, so that the answer has the reason. */
#define PR_ADMIN_STATEMENT_MS 4000

struct MHD_Daemon;

/* A thread that answers requests one after the other, while their connections are suspended. */
struct pr_admin_queue {
	pthread_t thread;
	bool started;
	void (*serve)(struct pr_admin_request *request);
	pthread_mutex_t lock; /* of the next three */
	pthread_cond_t wanted;
	struct pr_admin_request *first, **last; /* that wait for it */
	bool ending;
	struct pr_stop stop; /* ends its waits */
};

/* Requests that need the store. */
struct pr_admin_database {
	struct pr_admin_queue queue;

	/* The rest is the thread's own, but for the last. */
	char *url, *schema;
	struct postroom_store *store; /* NULL: not connected */
	int64_t retry_us;	      /* monotonic: not to be connected before */
	struct pr_err failure;	      /* why it could not be connected */
	struct pr_log log;
	struct pr_status_cache *cache;
	_Atomic int64_t answered_us; /* monotonic: when the store last answered; 0: it did not */
};

/* Requests for the findings of the doctor. */
struct pr_admin_doctor {
	struct pr_admin_queue queue;
	pr_admin_doctor_fn run;
	void *context;

	/* The rest is the thread's own: the findings, as items of a list. */
	struct pr_buf items;
	int64_t at_us;
	int64_t read_us; /* monotonic; 0: there are none */
};

#define PR_ADMIN_CONNECTIONS 64
#define PR_ADMIN_ADDRESS_CONNECTIONS 32
/* With room for connections that are being closed. */
#define PR_ADMIN_SOCKETS (PR_ADMIN_CONNECTIONS + 16)

struct pr_admin_socket {
	int fd;
	bool open;
	bool ended;		   /* we have shut it down */
	unsigned char address[16]; /* of the client; of a network of IPv6 */
	int64_t waits_us; /* monotonic: since when it waits for its client; 0: it is being served */
};

struct pr_admin_sockets {
	pthread_mutex_t lock; /* of the rest */
	pthread_cond_t closed;
	struct pr_admin_socket sockets[PR_ADMIN_SOCKETS];
};

struct pr_admin {
	struct pr_relay *relay;
	struct MHD_Daemon *daemon;
	pthread_mutex_t lock; /* of settings */
	struct pr_admin_settings *settings;
	struct pr_admin_database database;
	struct pr_admin_doctor doctor;
	struct pr_admin_sockets sockets;
	/* Of the thread that serves: */
	struct pr_buf openapi; /* the description of the API; empty until a client requests it */
	struct pr_log log;
	int64_t refused_us; /* when a refusal was last logged */
	size_t unread;	    /* bytes of large answers that are being sent */
	bool lowered;	    /* its priority is */
};

/* sockets.c */
struct sockaddr;
void pr_sockets_init(struct pr_admin_sockets *sockets);
/*
 * A new connection. If there are too many, the one that has waited longest for its client is ended.
 * NULL: there is no room at all.
 */
struct pr_admin_socket *pr_sockets_add(struct pr_admin_sockets *sockets, int fd,
				       const struct sockaddr *client);
void pr_sockets_remove(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket);
/* The client has done its part: from now on the connection is being served, or waits anew. */
void pr_sockets_serve(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket);
void pr_sockets_wait(struct pr_admin_sockets *sockets, struct pr_admin_socket *socket);
/* Ends all connections and waits until they are closed, but not for long. */
void pr_sockets_end(struct pr_admin_sockets *sockets);
void pr_sockets_release(struct pr_admin_sockets *sockets);

/* queue.c */
void pr_queue_init(struct pr_admin_queue *queue, void (*serve)(struct pr_admin_request *request));
int pr_queue_start(struct pr_admin_queue *queue, const char *name, struct pr_err *err);
/* Has the thread go on with a request, whose connection is suspended. False: too late. */
bool pr_queue_submit(struct pr_admin_queue *queue, struct pr_admin_request *request);
/*
 * Requests a stop, refuses all that is queued and ends the thread; nothing can be submitted any
 * more.
 */
void pr_queue_end(struct pr_admin_queue *queue, int64_t grace_ms);
void pr_queue_release(struct pr_admin_queue *queue);

/* database.c */
void pr_database_serve(struct pr_admin_request *request);
int pr_database_open(struct pr_admin *admin, const struct pr_relay_config *host,
		     struct pr_err *err);
/* Ends its thread. */
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
/* How long figures are valid that took took_us to read, when rows were counted. */
int64_t pr_status_keep_us(int64_t took_us, int64_t rows);
/* The same figures as of pr_api_stats(). NULL: the store failed, and the answer says why. */
const struct pr_gauges *pr_status_gauges(struct pr_admin_request *request);
/* The next request reads the store. */
void pr_status_cache_expire(struct pr_status_cache *cache);

/* api_doctor.c: in the doctor's thread. */
void pr_api_doctor(struct pr_admin_request *request);
void pr_doctor_end(struct pr_admin_doctor *doctor);
void pr_doctor_release(struct pr_admin_doctor *doctor);

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
void pr_api_healthz(struct pr_admin_request *request);
/* Answer without the store, from any thread. False: it needs the store. */
bool pr_readyz_answer(struct pr_admin_request *request);
bool pr_healthz_answer(struct pr_admin_request *request);
void pr_api_metrics(struct pr_admin_request *request);
/*
 * Members "status" and "reasons"; returns the level: 0 healthy, 1 degraded, 2 unhealthy. counted:
 * figures that are newer than those of the janitor, or NULL.
 */
int pr_put_health(struct pr_admin *admin, const struct pr_admin_settings *settings,
		  const struct pr_gauges *counted, struct pr_buf *out);
/* For pr_metrics_set_health(). */
void pr_health_levels(void *context, int levels[PR_HEALTH_COMPONENTS]);

/* page.c, openapi.c */
void pr_api_page(struct pr_admin_request *request);
void pr_api_openapi(struct pr_admin_request *request);

#endif
