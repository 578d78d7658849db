/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's command. Signals are blocked in every thread and taken by the
 * main one, which does nothing else but watch over the others (and draw the bar
 * of --drain): so they can come at any time, while the database is being opened
 * too. It has to be the main one: orphans that process 1 of a container inherits
 * become that thread's children.
 */
#include "cli/supervise.h"

#include "base/time.h"
#include "relay/limit.h"
#include "relay/relay.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct relay_options {
	struct pr_relay_config config;
	int64_t max_attempts;
	int64_t backoff;
	int64_t max_error_length;
	int64_t on_dead;
	const char *rate;
	const char *retention;
	const char *dedupe_retention;
};

#define RETENTION_MAX_MS (36525LL * 86400000)

static const char *const backoffs[] = { "exponential", "constant", NULL };
static const char *const on_dead[] = { "continue", "block", NULL }; /* as postroom_on_dead */

#define OPTION(member) offsetof(struct relay_options, member)

static const struct pr_param params[] = {
	{ .name = "to",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(config.to),
	  .value = "SINK-URL",
	  .help = "where messages go; has to be given (postroom sinks lists them)" },
	{ .name = "rate",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(rate),
	  .value = "N/s",
	  .help = "most messages a second given to the sink, or a minute or hour: 30/m, 1000/h" },
	{ .name = "concurrency",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(config.concurrency),
	  .value = "N",
	  .max = 10000,
	  .help = "most messages in the sink's hands at once, where it takes them one by one "
		  "(default: what the sink thinks best)" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(config.drain),
	  .help = "stop when every message in scope is delivered or dead; what is delayed to a "
		  "later time and was never tried is left alone" },
	{ .name = "namespace",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(config.scope.ns),
	  .value = "NAME",
	  .help = "only this namespace" },
	{ .name = "topic",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(config.scope.topic),
	  .value = "PATTERN",
	  .help = "only these topics; * stands for any characters" },
	{ .name = "tenant",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(config.scope.tenant_id),
	  .value = "UUID",
	  .help = "only this tenant" },
	{ .name = "workers",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(config.workers),
	  .value = "N",
	  .fallback = "2",
	  .min = 1,
	  .max = 256,
	  .help = "how many work at the same time" },
	{ .name = "batch-size",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(config.batch_size),
	  .value = "N",
	  .fallback = "500",
	  .min = 1,
	  .max = 10000,
	  .help = "most messages claimed at once" },
	{ .name = "lease",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.lease_ms),
	  .value = "DUR",
	  .fallback = "30s",
	  .min = 30,
	  .max = 86400000,
	  .help = "how long a claim holds; then another relay may take over" },
	{ .name = "poll-interval",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.poll_interval_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 86400000,
	  .help = "how often to look for work (default: the smaller of 1s and a third of the "
		  "lease)" },
	{ .name = "max-attempts",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(max_attempts),
	  .value = "N",
	  .fallback = "10",
	  .min = 1,
	  .max = 1000000,
	  .help = "a message that failed so often is dead" },
	{ .name = "base-delay",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.policy.base_delay_ms),
	  .value = "DUR",
	  .fallback = "1s",
	  .max = 30LL * 86400000,
	  .help = "wait before the second attempt; doubles each time" },
	{ .name = "max-delay",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.policy.max_delay_ms),
	  .value = "DUR",
	  .fallback = "5m",
	  .max = 30LL * 86400000,
	  .help = "longest wait between attempts" },
	{ .name = "backoff",
	  .type = PR_PARAM_CHOICE,
	  .offset = OPTION(backoff),
	  .value = "KIND",
	  .fallback = "exponential",
	  .choices = backoffs,
	  .help = "how the wait grows" },
	{ .name = "on-dead",
	  .type = PR_PARAM_CHOICE,
	  .offset = OPTION(on_dead),
	  .value = "WHAT",
	  .fallback = "continue",
	  .choices = on_dead,
	  .help = "what a dead message does to the later ones of its key; block holds them back "
		  "until it is retried or purged" },
	{ .name = "max-error-length",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(max_error_length),
	  .value = "N",
	  .fallback = "2000",
	  .min = 1,
	  .max = 100000,
	  .help = "characters of a failure's reason that are kept" },
	{ .name = "publish-timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.publish_timeout_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 86400000,
	  .help = "what one message may take (default: the smaller of 10s and half the lease)" },
	{ .name = "shutdown-grace",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(config.shutdown_grace_ms),
	  .value = "DUR",
	  .fallback = "20s",
	  .max = 86400000,
	  .help = "how long to finish what is in flight when told to stop" },
	{ .name = "retention",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(retention),
	  .value = "DUR",
	  .fallback = "7d",
	  .help = "delivered messages are deleted after this, with 0 at once; never keeps them" },
	{ .name = "dedupe-retention",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(dedupe_retention),
	  .value = "DUR",
	  .fallback = "30d",
	  .help = "how long the dedupe keys of deleted messages stay known; never forgets none" },
	{ 0 },
};

struct watch {
	struct cli *cli;
	const struct pr_relay_config *config;
	pthread_t thread; /* which opens and runs the relay */
	pthread_t watcher;
	sigset_t set;
	struct cli_supervisor supervisor;
	struct pr_relay *_Atomic relay; /* NULL until it is open */
	atomic_bool finished; /* and status and err tell how */
	int status;
	struct pr_err err;
	bool stopping;
	atomic_bool draw; /* the bar of --drain; progress is set up before */
	struct cli_progress progress;
};

static void draw_progress(struct watch *watch, struct pr_relay *relay)
{
	struct pr_relay_totals totals;

	pr_relay_totals(relay, &totals);
	cli_progress_show(&watch->progress, totals.delivered + totals.dead,
			  totals.delivered + totals.dead);
}

static void take_signal(struct watch *watch, struct pr_relay *relay, int number)
{
	if (number == SIGHUP) {
		if (!relay)
			return;
		cli_supervise_reloading(&watch->supervisor);
		pr_relay_reopen(relay);
		cli_supervise_reloaded(&watch->supervisor);
		return;
	}
	cli_supervise_stopping(&watch->supervisor);
	if (!relay) {
		_exit(CLI_DONE); /* still waiting for the database: nothing is in flight */
	} else if (watch->stopping) {
		cli_fail(watch->cli, "relay: told twice to stop; what was in flight will be "
				     "claimed again when its lease has run out");
		_exit(CLI_FAILED);
	} else {
		watch->stopping = true;
		pr_relay_stop(relay);
	}
}

static void watch_relay(struct watch *watch)
{
	static const struct timespec pause = { .tv_nsec = 100000000 };

	for (;;) {
		int number = sigtimedwait(&watch->set, NULL, &pause);
		struct pr_relay *relay = atomic_load(&watch->relay);

		if (atomic_load(&watch->finished))
			return;
		if (number > 0)
			take_signal(watch, relay, number);
		cli_supervise_look(&watch->supervisor, relay);
		if (relay && atomic_load(&watch->draw))
			draw_progress(watch, relay);
	}
}

/* How much there is to do, for the bar; not knowing it is no reason to fail. */
static int64_t count_backlog(struct cli *cli)
{
	const struct pr_store_config config = { .url = cli->global.db,
						.schema = cli->global.schema };
	struct postroom_store *store = NULL;
	postroom_counts counts = { 0 };

	if (pr_store_open(&config, &store, NULL) >= 0)
		postroom_stats(store, &counts, NULL, NULL);
	pr_store_close(store);
	return counts.pending + counts.processing;
}

static int open_and_run(struct watch *watch, struct pr_err *err)
{
	const struct pr_relay_config *config = watch->config;
	struct cli *cli = watch->cli;
	struct pr_relay *relay = NULL;
	int status = pr_relay_open(config, &relay, err);

	if (status < 0)
		return status;
	if (config->drain && cli->err_terminal) {
		cli_progress_begin(&watch->progress, cli, "drain", count_backlog(cli));
		atomic_store(&watch->draw, true);
	}
	atomic_store(&watch->relay, relay);
	return pr_relay_run(relay, err);
}

static void *run_relay(void *context)
{
	struct watch *watch = context;

	watch->status = open_and_run(watch, &watch->err);
	atomic_store(&watch->finished, true);
	pthread_kill(watch->watcher, SIGHUP);
	return NULL;
}

static int begin_watch(struct watch *watch)
{
	cli_supervise_begin(&watch->supervisor, watch->cli);
	watch->watcher = pthread_self();
	sigemptyset(&watch->set);
	sigaddset(&watch->set, SIGTERM);
	sigaddset(&watch->set, SIGINT);
	sigaddset(&watch->set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &watch->set, NULL);
	return pthread_create(&watch->thread, NULL, run_relay, watch);
}

static void end_watch(struct watch *watch)
{
	pthread_join(watch->thread, NULL);
	cli_supervise_end(&watch->supervisor, watch->status >= 0);
	if (atomic_load(&watch->draw))
		cli_progress_end(&watch->progress);
}

static int read_retention(struct cli *cli, const char *option, const char *text, int64_t *ret_ms)
{
	struct pr_err err = { 0 };

	*ret_ms = -1;
	if (strcmp(text, "never") == 0)
		return CLI_DONE;
	if (pr_duration_parse(text, ret_ms, &err) < 0)
		return cli_usage(cli, "--%s: %s, or never", option, err.text);
	if (*ret_ms > RETENTION_MAX_MS)
		return cli_usage(cli, "--%s: \"%s\" is more than a hundred years; write never",
				 option, text);
	return CLI_DONE;
}

static int read_config(struct cli *cli, struct relay_options *given, char tenant[PR_UUID_SIZE])
{
	struct pr_relay_config *config = &given->config;
	struct pr_err err = { 0 };
	int status = cli_read_tenant(cli, config->scope.tenant_id, tenant);

	if (status != CLI_DONE)
		return status;
	if (!config->to)
		return cli_usage(cli, "relay: --to SINK-URL is missing, for example --to stdout:");
	if (config->scope.tenant_id)
		config->scope.tenant_id = tenant;
	if (given->rate && pr_rate_parse(given->rate, &config->rate, &err) < 0)
		return cli_usage(cli, "--rate: %s", err.text);
	config->url = cli->global.db;
	config->schema = cli->global.schema;
	config->policy.max_attempts = (int32_t)given->max_attempts;
	config->policy.backoff = (postroom_backoff)given->backoff;
	config->policy.max_error_length = (int32_t)given->max_error_length;
	config->policy.block = given->on_dead == POSTROOM_ON_DEAD_BLOCK;
	status = read_retention(cli, "retention", given->retention, &config->retention_ms);
	if (status == CLI_DONE)
		status = read_retention(cli, "dedupe-retention", given->dedupe_retention,
					&config->dedupe_retention_ms);
	if (status != CLI_DONE)
		return status;
	config->policy.forget = config->retention_ms == 0;
	config->log_level = (enum pr_log_level)cli->global.log_level;
	config->log_format = (enum pr_log_format)cli->global.log_format;
	if (pr_relay_config_check(config, &err) < 0)
		return cli_usage(cli, "%s", err.text);
	return CLI_DONE;
}

static int run(struct cli *cli, void *options)
{
	struct relay_options *given = options;
	struct watch watch = { .cli = cli, .config = &given->config };
	char tenant[PR_UUID_SIZE];
	struct pr_relay *relay;
	int status = read_config(cli, given, tenant);

	if (status != CLI_DONE)
		return status;
	if (begin_watch(&watch) != 0)
		return cli_fail(cli, "relay: can not start a thread: no resources left");
	watch_relay(&watch);
	end_watch(&watch);
	relay = atomic_load(&watch.relay);
	pr_relay_close(relay);
	if (watch.status >= 0)
		return CLI_DONE;
	if (!relay && (watch.status == POSTROOM_INVALID || watch.status == POSTROOM_SINK))
		return cli_usage(cli, "%s", watch.err.text);
	return cli_fail(cli, "%s", watch.err.text);
}

const struct cli_command cmd_relay = {
	.name = "relay",
	.synopsis = "--to SINK-URL [OPTIONS]",
	.summary = "Deliver messages: the worker",
	.about = "Claims messages, publishes them to the sink, and settles what became of "
		 "them, until SIGTERM or SIGINT: then it finishes or gives back what is in "
		 "flight and exits 0. A second signal ends it at once. SIGHUP makes file: "
		 "sinks reopen their files. Nothing is lost either way, and any number of "
		 "relays may share a database.",
	.examples = "postroom relay --to stdout: --drain\n"
		    "postroom relay --to file:/var/log/events.ndjson --topic 'orders.*'\n"
		    "postroom relay --to 'exec:./deliver.sh' --workers 4 --publish-timeout 5s",
	.params = params,
	.options_size = sizeof(struct relay_options),
	.run = run,
};
