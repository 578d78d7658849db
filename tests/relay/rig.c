/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/rig.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

struct rig run;

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char events[60000];

static void keep_event(void *context, enum pr_log_level level, const char *event,
		       const char *fields)
{
	size_t used;

	(void)context, (void)level;
	pthread_mutex_lock(&lock);
	used = strlen(events);
	if (used < sizeof(events) - 500)
		snprintf(events + used, sizeof(events) - used, "%s %s\n", event, fields);
	pthread_mutex_unlock(&lock);
}

bool was_logged(const char *part)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = strstr(events, part) != NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

struct pr_relay_config rig_config(void)
{
	return (struct pr_relay_config){
		.url = url,
		.workers = 2,
		.batch_size = 50,
		.lease_ms = 30000,
		.shutdown_grace_ms = 20000,
		.policy = { .max_attempts = 3,
			    .base_delay_ms = 10,
			    .max_delay_ms = 10,
			    .max_error_length = 100 },
		.retention_ms = -1,
		.dead_retention_ms = -1,
		.dedupe_retention_ms = -1,
		.inbox_retention_ms = -1,
		.log_level = PR_LOG_INFO,
		.log = keep_event,
	};
}

static void *run_relay(void *unused)
{
	run.status = pr_relay_run(run.relay, &run.err);
	return unused;
}

void run_in_thread(void)
{
	CHECK(pthread_create(&thread, NULL, run_relay, NULL) == 0);
}

void start(struct pr_relay_config config)
{
	signal(SIGPIPE,
	       SIG_IGN); /* as the program does: a command may end before it has read all */
	CHECK_MSG(pr_relay_config_check(&config, &run.err) >= 0, "%s", run.err.text);
	CHECK_MSG(pr_relay_open(&config, &run.relay, &run.err) >= 0, "%s", run.err.text);
	run_in_thread();
}

void finish(void)
{
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_MSG(run.status >= 0, "%s", run.err.text);
	pr_relay_close(run.relay);
}

void stop(void)
{
	pr_relay_stop(run.relay);
	finish();
}

int64_t lines_in(const char *path)
{
	FILE *file = fopen(path, "r");
	int64_t lines = 0;
	int c;

	while (file && (c = getc(file)) != EOF)
		lines += c == '\n';
	if (file)
		fclose(file);
	return lines;
}

void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

void wait_for_lines(const char *path, int64_t lines)
{
	while (lines_in(path) < lines)
		nap();
	CHECK_INT(lines_in(path), lines);
}

void put(const char *topic, int count)
{
	for (int i = 0; i < count; i++)
		PUT(.topic = topic, .payload = "1");
}
