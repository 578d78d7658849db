/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's command. Signals are blocked in every thread and taken by the
 * main one, which does nothing else but watch over the others (and draw the bar
 * of --drain): so they can come at any time, while the database is being opened
 * too. It has to be the main one: orphans that process 1 of a container inherits
 * become that thread's children.
 */
#include "cli/supervise.h"

#include "config/config.h"
#include "relay/limit.h"

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
	bool check;
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
	  .help = "where all messages go, instead of the sinks and routes of the configuration "
		  "(postroom sinks lists what there is)" },
	{ .name = "rate",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(rate),
	  .value = "N/s",
	  .help = "most messages a second given to the sink of --to, or a minute or hour: 30/m, 1000/h" },
	{ .name = "concurrency",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(config.concurrency),
	  .value = "N",
	  .max = PR_CONCURRENCY_MAX,
	  .help = "most messages in the hands of that sink at once (default: what it thinks best)" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(config.drain),
	  .help = "stop when every message in scope is delivered or dead; what is delayed to a "
		  "later time and was never tried is left alone" },
	{ .name = "check",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(check),
	  .help = "check the configuration, print what is in effect, and do nothing else" },
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
	  .type = PR_PARAM_PERIOD,
	  .offset = OPTION(config.retention_ms),
	  .value = "DUR",
	  .fallback = "7d",
	  .max = RETENTION_MAX_MS,
	  .help = "delivered messages are deleted after this, with 0 at once; never keeps them" },
	{ .name = "dead-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = OPTION(config.dead_retention_ms),
	  .value = "DUR",
	  .fallback = "never",
	  .max = RETENTION_MAX_MS,
	  .help = "dead messages are deleted after this" },
	{ .name = "dedupe-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = OPTION(config.dedupe_retention_ms),
	  .value = "DUR",
	  .fallback = "30d",
	  .max = RETENTION_MAX_MS,
	  .help = "how long the dedupe keys of deleted messages stay known; never forgets none" },
	{ .name = "inbox-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = OPTION(config.inbox_retention_ms),
	  .value = "DUR",
	  .fallback = "30d",
	  .min = 1,
	  .max = RETENTION_MAX_MS,
	  .help = "what is completed is deleted from the inbox after this, and new when it comes "
		  "again" },
	{ 0 },
};

/* The first of them are orders for this run; from here on they are settings, for a file too. */
#define SETTINGS 5

static bool read_tenant(struct pr_relay_config *config, struct pr_config *loaded)
{
	char *tenant = pr_arena_alloc(&loaded->arena, PR_UUID_SIZE);

	if (!tenant || !pr_uuid_normalize(config->scope.tenant_id, tenant))
		return false;
	config->scope.tenant_id = tenant;
	return true;
}

/* Fills in what the options do not reach, and checks what must hold between them. */
static void finish(struct cli *cli, struct relay_options *options, struct pr_config *loaded,
		   struct pr_faults *faults)
{
	struct pr_relay_config *config = &options->config;
	struct pr_err err = { 0 };

	config->url = loaded->database->text;
	if (options->rate && pr_rate_parse(options->rate, &config->rate, &err) < 0)
		pr_fault(faults, "--rate: %s", err.text);
	config->schema = cli->global.schema;
	if (!config->to) {
		config->sinks = loaded->sinks;
		config->sink_count = loaded->sink_count;
		config->routes = loaded->routes;
		config->route_count = loaded->route_count;
	}
	config->policy.max_attempts = (int32_t)options->max_attempts;
	config->policy.backoff = (postroom_backoff)options->backoff;
	config->policy.max_error_length = (int32_t)options->max_error_length;
	config->policy.block = options->on_dead == POSTROOM_ON_DEAD_BLOCK;
	config->policy.forget = config->retention_ms == 0;
	config->log_level = (enum pr_log_level)cli->global.log_level;
	config->log_format = (enum pr_log_format)cli->global.log_format;
	if (!loaded->file && !config->to)
		pr_fault(faults, "relay: --to SINK-URL is missing, for example --to stdout:; or "
				 "a --config FILE that says where messages go");
	else if (!config->to && (options->rate || config->concurrency))
		pr_fault(faults, "relay: --rate and --concurrency go with --to; in a configuration "
				 "each sink has its own, as in sinks.NAME.rate");
	else if (loaded->route_count == 0)
		pr_fault(faults,
			 "%s: routes: there are none, so no message would go anywhere; see "
			 "postroom.yaml(5), or give --to",
			 loaded->file);
	if (config->scope.tenant_id && !read_tenant(config, loaded))
		pr_config_blame(loaded, "tenant takes a UUID", faults);
	if (pr_relay_config_check(config, &err) < 0)
		pr_config_blame(loaded, err.text, faults);
}

/*
 * Everything that the file, the environment and the command line say. It may
 * be loaded again, into other options, while the first is in use: both live as
 * long as their configuration.
 */
static int load(struct cli *cli, struct relay_options *options, struct pr_config **ret,
		struct pr_faults *faults, struct pr_err *err)
{
	const struct pr_config_input input = {
		.file = cli->global.config,
		.database = cli->global.db,
		.to = options->config.to,
		.params = params + SETTINGS,
		.given = cli->given + SETTINGS,
		.target = options,
	};
	struct pr_config *loaded = NULL;
	int status = pr_config_load(&input, &loaded, faults, err);

	if (status < 0)
		return status;
	finish(cli, options, loaded, faults);
	if (faults->count > 0) {
		pr_config_free(loaded);
		return pr_err_set(err, POSTROOM_INVALID, "%.*s",
				  (int)strcspn(pr_buf_text(&faults->text), "\n"),
				  pr_buf_text(&faults->text));
	}
	*ret = loaded;
	return POSTROOM_OK;
}

struct pr_config *cli_load_routes(struct cli *cli)
{
	static const char *const nothing[sizeof(params) / sizeof(params[0])];
	struct relay_options ignored = { 0 };
	const struct pr_config_input input = {
		.file = cli->global.config,
		.database = cli->global.db,
		.params = params + SETTINGS,
		.given = nothing,
		.target = &ignored,
	};
	struct pr_faults faults = { 0 };
	struct pr_config *loaded = NULL;

	if (cli->global.config)
		pr_config_load(&input, &loaded, &faults, NULL);
	pr_faults_release(&faults);
	return loaded;
}

struct watch {
	struct cli *cli;
	const struct pr_relay_config *config;
	const struct relay_options *given; /* before anything else was put to it */
	pthread_t thread; /* which opens and runs the relay */
	pthread_t watcher;
	sigset_t set;
	struct cli_supervisor supervisor;
	struct pr_relay *_Atomic relay; /* NULL until it is open */
	atomic_bool finished; /* and status and err tell how */
	int status;
	struct pr_err err;
	bool stopping;
	bool hung_up; /* while it was being opened: to be done when it is */
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

static void reload(struct watch *watch, struct pr_relay *relay)
{
	struct relay_options options = *watch->given;
	struct pr_log *log = &watch->cli->log;
	struct pr_faults faults = { 0 };
	struct pr_config *loaded = NULL;
	struct pr_err err = { 0 };
	int status = load(watch->cli, &options, &loaded, &faults, &err);

	if (status >= 0)
		status = pr_relay_reload(relay, &options.config, &err);
	if (status < 0 && status != POSTROOM_STOPPED) {
		pr_log_box(log, PR_LOG_ERROR, "RELOAD_REFUSED");
		pr_log_str(log, "error", err.text);
		pr_log_end(log);
	}
	pr_config_free(loaded);
	pr_faults_release(&faults);
}

static void take_signal(struct watch *watch, struct pr_relay *relay, int number)
{
	if (number == SIGHUP) {
		watch->hung_up = !relay;
		if (!relay)
			return;
		cli_supervise_reloading(&watch->supervisor);
		pr_relay_reopen(relay);
		if (watch->cli->global.config)
			reload(watch, relay);
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
		if (relay && watch->hung_up)
			take_signal(watch, relay, SIGHUP);
		cli_supervise_look(&watch->supervisor, relay);
		if (relay && atomic_load(&watch->draw))
			draw_progress(watch, relay);
	}
}

/* How much there is to do, for the bar; not knowing it is no reason to fail. */
static int64_t count_backlog(const struct pr_relay_config *relay)
{
	const struct pr_store_config config = { .url = relay->url, .schema = relay->schema };
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
		cli_progress_begin(&watch->progress, cli, "drain", count_backlog(config));
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

static int load_or_tell(struct cli *cli, struct relay_options *options, struct pr_config **ret)
{
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status = CLI_DONE;

	if (load(cli, options, ret, &faults, &err) < 0)
		status = cli_config_fail(cli, &faults, &err);
	pr_faults_release(&faults);
	return status;
}

static int show(struct cli *cli, const struct relay_options *options,
		const struct pr_config *loaded)
{
	struct pr_err err = { 0 };

	if (pr_relay_try_sinks(&options->config, &err) < 0)
		return cli_usage(cli, "%s", err.text);
	if (cli->global.json)
		pr_config_put_json(loaded, options, &cli->out);
	else
		pr_config_put_yaml(loaded, options, &cli->out);
	return CLI_DONE;
}

static int work(struct cli *cli, struct relay_options *options, const struct relay_options *given)
{
	struct watch watch = { .cli = cli, .config = &options->config, .given = given };
	struct pr_relay *relay;

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

static int run(struct cli *cli, void *given)
{
	struct relay_options *options = given;
	const struct relay_options pristine = *options;
	struct pr_config *loaded = NULL;
	int status = load_or_tell(cli, options, &loaded);

	if (status != CLI_DONE)
		return status;
	if (options->check) {
		status = show(cli, options, loaded);
	} else {
		status = work(cli, options, &pristine);
	}
	pr_config_free(loaded);
	return status;
}

const struct cli_command cmd_relay = {
	.name = "relay",
	.synopsis = "--to SINK-URL [OPTIONS]\n--config FILE [OPTIONS]\n--check [OPTIONS]",
	.summary = "Deliver messages: the worker",
	.about = "Claims messages, publishes them to the sink, and settles what became of "
		 "them, until SIGTERM or SIGINT: then it finishes or gives back what is in "
		 "flight and exits 0. A second signal ends it at once. SIGHUP makes it read "
		 "its configuration again, and file: sinks reopen their files. Nothing is lost "
		 "either way, and any number of relays may share a database.\n\n"
		 "Where messages go is said by --to, or by the sinks and routes of a "
		 "configuration, which can hold the other settings too.",
	.examples = "postroom relay --to stdout: --drain\n"
		    "postroom relay --to file:/var/log/events.ndjson --topic 'orders.*'\n"
		    "postroom relay --to 'exec:./deliver.sh' --workers 4 --publish-timeout 5s\n"
		    "postroom relay --config postroom.yaml --check",
	.params = params,
	.options_size = sizeof(struct relay_options),
	.configured = true,
	.run = run,
};
