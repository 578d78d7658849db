/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's command: its configuration, from the command line, a file, and again on SIGHUP. */
#include "cli/watch.h"
#include "cli/workers.h"

#include "config/config.h"
#include "relay/limit.h"

#include <string.h>

struct relay_options {
	struct cli_workers workers;
	const char *rate;
	bool check;
};

#define OPTION(member) offsetof(struct relay_options, member)
#define WORKERS(member) OPTION(workers.member)

static const struct pr_param params[] = {
	{ .name = "to",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.to),
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
	  .offset = WORKERS(config.concurrency),
	  .value = "N",
	  .max = PR_CONCURRENCY_MAX,
	  .help = "most messages in the hands of that sink at once (default: what it thinks best)" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = WORKERS(config.drain),
	  .help = "stop when every message in scope is delivered or dead; what is delayed to a "
		  "later time and was never tried is left alone" },
	{ .name = "check",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(check),
	  .help = "check the configuration, print what is in effect, and do nothing else" },
	{ .name = "namespace",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.scope.ns),
	  .value = "NAME",
	  .help = "only this namespace" },
	{ .name = "topic",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.scope.topic),
	  .value = "PATTERN",
	  .help = "only these topics; * stands for any characters" },
	{ .name = "tenant",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.scope.tenant_id),
	  .value = "UUID",
	  .help = "only this tenant" },
	CLI_WORKERS_PARAMS(WORKERS),
	{ .name = "publish-timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = WORKERS(config.publish_timeout_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 86400000,
	  .help = "what one message may take (default: the smaller of 10s and half the lease)" },
	CLI_GRACE_PARAM(WORKERS),
	{ .name = "retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = WORKERS(config.retention_ms),
	  .value = "DUR",
	  .fallback = "7d",
	  .max = CLI_AGE_MAX_MS,
	  .help = "delivered messages are deleted after this, with 0 at once; never keeps them" },
	CLI_DEAD_RETENTION_PARAM(WORKERS),
	{ .name = "dedupe-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = WORKERS(config.dedupe_retention_ms),
	  .value = "DUR",
	  .fallback = "30d",
	  .max = CLI_AGE_MAX_MS,
	  .help = "how long the dedupe keys of deleted messages stay known; never forgets none" },
	CLI_INBOX_RETENTION_PARAM(WORKERS),
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
	struct pr_relay_config *config = &options->workers.config;
	struct pr_err err = { 0 };

	cli_workers_finish(&options->workers, cli);
	config->url = loaded->database->text;
	if (options->rate && pr_rate_parse(options->rate, &config->rate, &err) < 0)
		pr_fault(faults, "--rate: %s", err.text);
	if (!config->to) {
		config->sinks = loaded->sinks;
		config->sink_count = loaded->sink_count;
		config->routes = loaded->routes;
		config->route_count = loaded->route_count;
	}
	config->policy.forget = config->retention_ms == 0;
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
		.to = options->workers.config.to,
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

/* What the thread that runs the relay, and a reload, know. */
struct work {
	const struct pr_relay_config *config;
	const struct relay_options *given; /* before anything else was put to it */
	struct pr_relay *relay;		   /* NULL: it could not be opened */
};

static void reload(struct cli_watch *watch, struct pr_relay *relay)
{
	const struct work *work = watch->context;
	struct relay_options options = *work->given;
	struct pr_log *log = &watch->cli->log;
	struct pr_faults faults = { 0 };
	struct pr_config *loaded = NULL;
	struct pr_err err = { 0 };
	int status = load(watch->cli, &options, &loaded, &faults, &err);

	if (status >= 0)
		status = pr_relay_reload(relay, &options.workers.config, &err);
	if (status < 0 && status != POSTROOM_STOPPED) {
		pr_log_box(log, PR_LOG_ERROR, "RELOAD_REFUSED");
		pr_log_str(log, "error", err.text);
		pr_log_end(log);
	}
	pr_config_free(loaded);
	pr_faults_release(&faults);
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

static int open_and_run(struct cli_watch *watch, struct pr_err *err)
{
	struct work *work = watch->context;
	int status = pr_relay_open(work->config, &work->relay, err);

	if (status < 0)
		return status;
	if (work->config->drain && watch->cli->err_terminal)
		cli_watch_draw(watch, "drain", count_backlog(work->config));
	cli_watch_relay(watch, work->relay);
	return pr_relay_run(work->relay, err);
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

	if (pr_relay_try_sinks(&options->workers.config, &err) < 0)
		return cli_usage(cli, "%s", err.text);
	if (cli->global.json)
		pr_config_put_json(loaded, options, &cli->out);
	else
		pr_config_put_yaml(loaded, options, &cli->out);
	return CLI_DONE;
}

static int work(struct cli *cli, const struct relay_options *options,
		const struct relay_options *given)
{
	struct work work = { .config = &options->workers.config, .given = given };
	struct cli_watch watch = {
		.cli = cli,
		.name = "relay",
		.context = &work,
		.run = open_and_run,
		.reload = cli->global.config ? reload : NULL,
	};
	int status = cli_watch(&watch);

	pr_relay_close(work.relay);
	return status;
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
