/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that answers requests, so that the one that serves connections never waits.
 *
 * 1. A request is with one thread at a time: the one that serves suspends its connection before
 *    it submits it, and this one resumes it when it is done with it.
 * 2. Queued requests are answered when the server ends. A suspended connection would keep the
 *    server from ending.
 */
#include "admin/server.h"

#include <microhttpd.h>

static struct pr_admin_request *next_request(struct pr_admin_queue *queue, bool *ret_ending)
{
	struct pr_admin_request *request;

	pthread_mutex_lock(&queue->lock);
	while (!queue->first && !queue->ending)
		pthread_cond_wait(&queue->wanted, &queue->lock);
	request = queue->first;
	if (request) {
		queue->first = request->next;
		if (!queue->first)
			queue->last = &queue->first;
	}
	*ret_ending = queue->ending;
	pthread_mutex_unlock(&queue->lock);
	return request;
}

static void *run(void *context)
{
	struct pr_admin_queue *queue = context;
	struct pr_admin_request *request;
	bool ending;

	while ((request = next_request(queue, &ending))) {
		if (ending)
			pr_request_refuse(request, 503, "stopping", "the server is stopping");
		else
			queue->serve(request);
		request->step = PR_STEP_DONE;
		MHD_resume_connection(request->connection);
	}
	return NULL;
}

void pr_queue_init(struct pr_admin_queue *queue, void (*serve)(struct pr_admin_request *request))
{
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->wanted, NULL);
	queue->last = &queue->first;
	queue->stop.fd = queue->stop.event = -1;
	queue->serve = serve;
}

int pr_queue_start(struct pr_admin_queue *queue, const char *name, struct pr_err *err)
{
	int status = pr_stop_init(&queue->stop, err);

	if (status < 0) {
		queue->stop.fd = queue->stop.event = -1;
		return status;
	}
	if (pthread_create(&queue->thread, NULL, run, queue) != 0)
		return pr_err_set(err, POSTROOM_NOMEM,
				  "admin: cannot start a thread: no resources left");
	pthread_setname_np(queue->thread, name);
	queue->started = true;
	return POSTROOM_OK;
}

bool pr_queue_submit(struct pr_admin_queue *queue, struct pr_admin_request *request)
{
	bool ending;

	pthread_mutex_lock(&queue->lock);
	ending = queue->ending;
	if (!ending) {
		request->step = PR_STEP_QUEUED;
		request->next = NULL;
		MHD_suspend_connection(request->connection);
		*queue->last = request;
		queue->last = &request->next;
		pthread_cond_signal(&queue->wanted);
	}
	pthread_mutex_unlock(&queue->lock);
	return !ending;
}

void pr_queue_end(struct pr_admin_queue *queue, int64_t grace_ms)
{
	if (!queue->started)
		return;
	pthread_mutex_lock(&queue->lock);
	queue->ending = true;
	pthread_cond_signal(&queue->wanted);
	pthread_mutex_unlock(&queue->lock);
	pr_stop_request(&queue->stop, grace_ms);
	pthread_join(queue->thread, NULL);
	queue->started = false;
}

void pr_queue_release(struct pr_admin_queue *queue)
{
	pr_stop_release(&queue->stop);
	pthread_cond_destroy(&queue->wanted);
	pthread_mutex_destroy(&queue->lock);
}
