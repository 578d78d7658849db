/* SPDX-License-Identifier: Apache-2.0 */
/*
  * The cost of one pass of the relay by itself: its database is a few lines that make
 * messages and drop them, its sink takes everything.
 *
 *	pass COUNT BATCH LEVEL
 *
 * Prints the processor's time a message, in microseconds, and how often memory was
 * allocated for all of them, both after a tenth of the messages. LEVEL is that of the
 * log, which goes to stderr.
 */
#include "relay/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int64_t left, measured;
static double begun_us, took_us;
static bool counting; /* only the worker's own thread looks at it */
static int64_t allocations;
static _Thread_local bool is_worker;

static void must(bool ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "pass: %s\n", step);
	exit(1);
}

static double cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void claim(const struct pr_claim *claim, struct postroom_batch *batch)
{
	is_worker = true;
	if (!counting && left > 0 && left <= measured) {
		counting = true;
		begun_us = cpu_us();
	}
	for (int32_t i = 0; i < claim->limit && left > 0; i++, left--) {
		postroom_delivery *item = pr_batch_add(batch);

		must(item, "no memory");
		item->id = "0194f3a6-7e5c-7c3a-9b1d-3f2e6a5b4c3d";
		item->ns = "default";
		item->topic = "bench.orders";
		item->content_type = "application/json";
		item->headers = "{}";
		item->payload = "{\"order\":42}";
		item->payload_len = strlen(item->payload);
		item->attempt = 1;
		item->seq = left;
	}
	if (batch->count == 0 && counting) {
		took_us = cpu_us() - begun_us;
		counting = false;
		is_worker = false;
	}
}

static int settle_and_claim(struct postroom_store *store, const struct pr_table *table,
			    const struct pr_settle *settle, const struct pr_claim *step,
			    struct postroom_batch *next, struct pr_err *err)
{
	(void)store, (void)table, (void)err;
	for (size_t i = 0; settle && i < settle->count; i++) {
		must(settle->items[i].verdict == POSTROOM_DELIVERED, "not delivered");
		settle->items[i].settled = POSTROOM_OK;
	}
	if (step)
		claim(step, next);
	return POSTROOM_OK;
}

static int unfinished(struct postroom_store *store, const struct pr_table *table,
		      const struct pr_claim *step, bool *ret, struct pr_err *err)
{
	(void)store, (void)table, (void)step, (void)err;
	*ret = left > 0;
	return POSTROOM_OK;
}

static int check_schema(struct postroom_store *store, enum pr_schema_need need, struct pr_err *err)
{
	(void)store, (void)need, (void)err;
	return POSTROOM_OK;
}

static void close_store(struct postroom_store *store)
{
	free(store);
}

static const struct pr_store_ops ops = {
	.close = close_store,
	.check_schema = check_schema,
	.settle_and_claim = settle_and_claim,
	.unfinished = unfinished,
};

/* The linker's --wrap puts these in the place of step they are named after. */
int __wrap_pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
			 struct pr_err *err);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_reallocarray(void *memory, size_t count, size_t size);

int __wrap_pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
			 struct pr_err *err)
{
	(void)config, (void)err;
	*ret = calloc(1, sizeof(**ret));
	must(*ret, "no memory");
	(*ret)->ops = &ops;
	return POSTROOM_OK;
}

static void count_allocation(void)
{
	if (is_worker && counting)
		allocations++;
}

void *__wrap_malloc(size_t size)
{
	count_allocation();
	return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	count_allocation();
	return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	count_allocation();
	return __real_realloc(memory, size);
}

void *__wrap_reallocarray(void *memory, size_t count, size_t size)
{
	count_allocation();
	return __real_reallocarray(memory, count, size);
}

static enum pr_log_level level(const char *name)
{
	for (int i = 0; pr_log_levels[i]; i++) {
		if (strcmp(pr_log_levels[i], name) == 0)
			return (enum pr_log_level)i;
	}
	must(false, "no such level");
	return PR_LOG_OFF;
}

int main(int argc, char **argv)
{
	struct pr_relay_config config = {
		.url = "memory:",
		.to = "null:",
		.workers = 1,
		.lease_ms = 30000,
		.policy = { .max_attempts = 10,
			    .base_delay_ms = 1000,
			    .max_delay_ms = 300000,
			    .max_error_length = 2000 },
		.retention_ms = -1,
		.dead_retention_ms = -1,
		.dedupe_retention_ms = -1,
		.inbox_retention_ms = -1,
		.drain = true,
	};
	struct pr_relay *relay = NULL;
	struct pr_err err;

	if (argc < 4) {
		fprintf(stderr, "usage: pass COUNT BATCH LEVEL\n");
		return 2;
	}
	left = atoll(argv[1]);
	measured = left - left / 10;
	config.batch_size = atoll(argv[2]);
	config.log_level = level(argv[3]);
	must(pr_relay_config_check(&config, &err) >= 0 &&
		     pr_relay_make(&config, &relay, &err) >= 0 && pr_relay_run(relay, &err) >= 0,
	     err.text);
	pr_relay_close(relay);
	printf("%.4f %lld\n", took_us / (double)measured, (long long)allocations);
	return 0;
}
