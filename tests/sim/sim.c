/* SPDX-License-Identifier: Apache-2.0 */
/*
 *	sim			thousands of seeds; with POSTROOM_SOAK=1 many more
 *	sim SEED [-v]		one, with all that happens
 *	sim FIRST LAST
 *
  * True of every seed: nothing is lost, given time; a fault explains every duplicate
  * delivery; messages die only of failed attempts or of a rejection; none dies of an
  * outage alone, and soon after it everything is delivered. The rest is
 * checked where it happens, see sim.h.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define SEEDS 400
#else
#define SEEDS 3000
#endif
#define SEEDS_SOAK 30000

/* Long after all has calmed down: what is not finished by then never will be. */
#define PATIENCE_US (7200 * SECOND)

static const char *program;

static struct {
	int64_t at_us;
	size_t sink;
	char key[8];
	enum poison poison;
} to_come[ROWS_MAX];
static size_t to_come_count, come;

void fail(const char *format, ...)
{
	va_list args;

	printf("# seed %llu, at %.6f s: ", (unsigned long long)world.seed,
	       (double)world.now_us / 1e6);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n# all that happens: %s %llu -v\n", program, (unsigned long long)world.seed);
	printf("not ok C4_D5_D6_every_seed_keeps_what_the_relay_promises\n0 passed, 1 failed\n");
	fflush(stdout);
	exit(1);
}

static void log_to_trace(void *context, enum pr_log_level level, const char *event,
			 const char *fields)
{
	(void)context, (void)level;
	trace("%s %s", event, fields);
}

static void choose_config(void)
{
	struct pr_relay_config *config = &world.config;
	struct pr_err err;

	*config = (struct pr_relay_config){
		.url = "sim:",
		.workers = between(1, 3),
		.batch_size = between(1, 20),
		.lease_ms = between(1, 15) * 1000,
		.shutdown_grace_ms = between(0, 4000),
		.policy = { .max_attempts = (int32_t)between(1, 8),
			    .base_delay_ms = between(10, 1000),
			    .max_delay_ms = between(1000, 5000),
			    .max_error_length = 100,
			    .block = chance(200) },
		.retention_ms = -1,
		.dead_retention_ms = -1,
		.dedupe_retention_ms = -1,
		.inbox_retention_ms = -1,
		.drain = chance(100),
		.log_level = world.verbose ? PR_LOG_DEBUG : PR_LOG_OFF,
		.log = log_to_trace,
	};
	if (chance(300))
		config->publish_timeout_ms = between(10, config->lease_ms / 2);
	ENSURE(pr_relay_config_check(config, &err) >= 0, "%s", err.text);
}

static void choose_receiver(struct receiver *far, bool faults)
{
	*far = (struct receiver){
		.server = chance(700),
		.latency_us = between(1, 50000),
		.concurrency = chance(300) ? between(1, 6) : 0,
		.rate = chance(200) ? (double)between(5, 100) : 0,
		.slow = chance(300) ? (int)between(1, 300) : 0,
	};
	if (!faults)
		return;
	far->fails = chance(500) ? (int)between(0, 300) : 0;
	far->rejects = chance(300) ? (int)between(0, 100) : 0;
	far->loses_answers = chance(300) ? (int)between(0, 100) : 0;
	far->hangs = chance(300) ? (int)between(0, 400) : 0;
	far->declines = chance(200) ? (int)between(0, 100) : 0;
	far->unreachable = chance(200) ? (int)between(0, 100) : 0;
	if (chance(500)) {
		far->outage_begin_us = between(0, 30) * SECOND;
		far->outage_end_us = far->outage_begin_us + between(1, 60) * SECOND;
		far->outage = (enum outage_kind)between(0, OUTAGE_KINDS - 1);
	}
}

static void choose_sinks(bool faults)
{
	static const char *const names[SINKS_MAX] = { "a", "b" };
	static const char *const urls[SINKS_MAX] = { "sim:0", "sim:1" };
	static const char *const patterns[SINKS_MAX] = { "a.*", "b.*" };
	struct pr_relay_config *config = &world.config;

	world.sink_count = (size_t)between(1, SINKS_MAX);
	for (size_t i = 0; i < world.sink_count; i++) {
		choose_receiver(&world.far[i], faults);
		world.sinks[i] = (struct pr_relay_sink){ .name = names[i],
							 .url = urls[i],
							 .concurrency = world.far[i].concurrency,
							 .rate = world.far[i].rate };
		world.routes[i] = (struct pr_relay_route){ .topic = patterns[i], .sink = i };
	}
	if (world.sink_count == 1) {
		config->to = urls[0];
		config->concurrency = world.far[0].concurrency;
		config->rate = world.far[0].rate;
		return;
	}
	config->sinks = world.sinks;
	config->sink_count = world.sink_count;
	config->routes = world.routes;
	config->route_count = world.sink_count;
}

static int by_time(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

static void choose_messages(int64_t during_us)
{
	int64_t times[ROWS_MAX], keys = between(1, 6);
	int poisoned = world.none_dies ? 0 : chance(200) ? 300 : 50;

	to_come_count = (size_t)between(4, 40);
	come = 0;
	for (size_t i = 0; i < to_come_count; i++)
		times[i] = between(0, during_us);
	qsort(times, to_come_count, sizeof(*times), by_time);
	for (size_t i = 0; i < to_come_count; i++) {
		size_t sink = (size_t)between(0, (int64_t)world.sink_count - 1);

		/* One alone that fails and fails is poison, whatever the reason. */
		if (world.none_dies)
			sink = i % world.sink_count;
		to_come[i].at_us = times[i];
		to_come[i].sink = sink;
		to_come[i].key[0] = '\0';
		if (chance(700) && !world.none_dies)
			snprintf(to_come[i].key, sizeof(to_come[i].key), "k%d",
				 (int)between(1, keys));
		to_come[i].poison = chance(poisoned) ? (enum poison)between(FAILS, KILLS)
						     : HARMLESS;
	}
}

/* No faults except for the sinks, which are unreachable from the first message on. */
static void choose_outage(void)
{
	world.none_dies = true;
	world.config.drain = false;
	for (size_t i = 0; i < world.sink_count; i++) {
		struct receiver *far = &world.far[i];

		far->outage_begin_us = 0;
		far->outage_end_us = (chance(50) ? 6 * 3600 : between(10, 600)) * SECOND;
		far->outage = (enum outage_kind)between(0, OUTAGE_KINDS - 1);
		/* To distinguish it from poison takes consecutive failures, all seen by one relay. */
		if (far->outage != REFUSING) {
			far->server = true;
			world.process_count = 1;
			world.config.policy.max_attempts = PR_BREAKER_RUN + 1;
		}
		if (world.calm_us < far->outage_end_us)
			world.calm_us = far->outage_end_us;
	}
}

static void choose_faults(void)
{
	world.calm_us = between(30, 90) * SECOND;
	if (chance(300)) {
		world.db_fails = (int)between(0, 50);
		world.db_loses_answers = (int)between(0, 50);
	}
	if (chance(300)) {
		world.db_outage_us = between(0, 60) * SECOND;
		world.db_back_us = world.db_outage_us + between(1, 40) * SECOND;
	}
	for (size_t i = 0; i < world.process_count; i++)
		processes[i].faults_left = chance(600) ? (int)between(1, 6) : 0;
}

static void choose(uint64_t seed, bool verbose)
{
	bool faults;

	world = (struct world){ .seed = seed,
				.random = seed * 0x2545f4914f6cdd1d,
				.verbose = verbose,
				.now_us = SECOND };
	memset(processes, 0, sizeof(processes));
	faults = chance(850);
	choose_config();
	choose_sinks(faults);
	world.db_latency_us = between(1, world.config.lease_ms * 1000 / (chance(300) ? 30 : 300));
	world.stalls = chance(500);
	world.process_count = (size_t)between(1, PROCESSES_MAX);
	if (faults)
		choose_faults();
	else
		choose_outage();
	choose_messages(faults ? between(1, 40) * SECOND : SECOND);
	for (size_t i = 0; i < world.process_count; i++) {
		processes[i].number = (int)i + 1;
		processes[i].begin_us = between(0, 2 * SECOND);
	}
}

static bool any_poison(void)
{
	for (size_t i = 0; i < world.row_count; i++) {
		if (world.rows[i].poison && !row_finished(&world.rows[i]))
			return true;
	}
	return false;
}

/* Where only poison is left, only another message shows that the sink is well. */
static void trickle(int64_t *next_us)
{
	if (world.now_us < *next_us)
		return;
	*next_us = world.now_us + 20 * SECOND;
	for (size_t i = 0; any_poison() && i < world.sink_count; i++)
		row_add(i, "", HARMLESS);
}

/* The time of the next event that is not caused by the relays. */
static int64_t next_event_us(int64_t trickle_us)
{
	int64_t next_us = come < to_come_count ? to_come[come].at_us : trickle_us;

	for (size_t i = 0; i < world.process_count; i++) {
		if (!processes[i].relay && processes[i].begin_us < next_us)
			next_us = processes[i].begin_us;
	}
	return next_us;
}

static void reap_all(void)
{
	for (size_t i = 0; i < world.process_count; i++)
		process_reap(&processes[i]);
}

static void do_events(int64_t at_us, int64_t *trickle_us)
{
	if (world.now_us < at_us)
		world.now_us = at_us;
	for (; come < to_come_count && to_come[come].at_us <= world.now_us; come++)
		row_add(to_come[come].sink, to_come[come].key, to_come[come].poison);
	for (size_t i = 0; i < world.process_count; i++) {
		if (!processes[i].relay && processes[i].begin_us <= world.now_us)
			process_begin(&processes[i]);
	}
	trickle(trickle_us);
}

static void send_lost(void)
{
	for (size_t i = 0; i < world.row_count; i++)
		ENSURE(row_finished(&world.rows[i]), "%s is lost", world.rows[i].id);
	fail("all is finished, and it was not noticed");
}

static void live(void)
{
	int64_t trickle_us = world.calm_us + 10 * SECOND;

	for (;;) {
		int64_t event_us = next_event_us(trickle_us);

		if (!run_next(event_us))
			do_events(event_us, &trickle_us);
		reap_all();
		if (world.changed && come == to_come_count && all_finished())
			return;
		world.changed = false;
		if (world.now_us > world.calm_us + PATIENCE_US)
			send_lost();
	}
}

static void stop_all(void)
{
	int64_t grace_us = world.config.shutdown_grace_ms * 1000;
	int64_t until_us;

	world.calm_us = world.db_outage_us = world.db_back_us = 0;
	/* Suspended processes notice it later. */
	until_us = world.now_us + grace_us + (10 + 3 * world.config.lease_ms / 1000) * SECOND;
	for (size_t i = 0; i < world.process_count; i++) {
		if (processes[i].relay)
			process_stop(&processes[i]);
	}
	while (run_next(until_us))
		reap_all();
	for (size_t i = 0; i < world.process_count; i++)
		ENSURE(!processes[i].relay, "relay %d does not stop", processes[i].number);
}

static void check_outage(int64_t done_us)
{
	const struct pr_relay_config *config = &world.config;
	int64_t soon_us = world.calm_us + (20 * 1000 + config->policy.max_delay_ms +
					   2 * config->publish_timeout_ms) *
						  1000;

	for (size_t i = 0; i < world.row_count; i++)
		ENSURE(world.rows[i].status == DELIVERED, "%s died of an outage", world.rows[i].id);
	for (size_t i = 0; i < world.sink_count; i++) {
		/* One after the other if need be. */
		soon_us += (int64_t)world.row_count * world.far[i].latency_us;
		if (world.far[i].slow)
			return;
	}
	ENSURE(done_us <= soon_us, "after the outage it took %.3f s until all had arrived",
	       (double)(done_us - world.calm_us) / 1e6);
}

static void run_seed(uint64_t seed, bool verbose)
{
	int64_t delivered = 0, done_us;

	choose(seed, verbose);
	live();
	done_us = world.now_us;
	trace("all is finished");
	if (world.none_dies)
		check_outage(done_us);
	stop_all();
	for (size_t i = 0; i < world.row_count; i++) {
		const struct row *row = &world.rows[i];

		delivered += row->status == DELIVERED;
		ENSURE(row->status != DELIVERED || row->incoming_events > 0,
		       "%s is called delivered and has never arrived", row->id);
	}
	ENSURE(world.logged <= delivered, "%d are logged as delivered, and %d are",
	       (int)world.logged, (int)delivered);
}

int main(int argc, char **argv)
{
	const char *soak = getenv("POSTROOM_SOAK");
	bool verbose = argc > 1 && strcmp(argv[argc - 1], "-v") == 0;
	uint64_t first = 1, last = soak && strcmp(soak, "1") == 0 ? SEEDS_SOAK : SEEDS;
	int64_t steps = 0;

	program = argv[0];
	argc -= verbose;
	if (argc > 1)
		first = last = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		last = strtoull(argv[2], NULL, 10);
	for (uint64_t seed = first; seed <= last; seed++) {
		run_seed(seed, verbose);
		steps += world.steps;
	}
	printf("# %llu seeds, %lld steps\n", (unsigned long long)(last - first + 1),
	       (long long)steps);
	printf("ok C4_D5_D6_every_seed_keeps_what_the_relay_promises\n1 passed, 0 failed\n");
	return 0;
}
