/* SPDX-License-Identifier: Apache-2.0 */
/* postroom relay: reads its configuration from options and a file, and again on SIGHUP. */
#include "cli/admin.h"
#include "cli/examine.h"
#include "cli/watch.h"
#include "cli/workers.h"

#include "config/config.h"
#include "relay/limit.h"
#include "relay/metrics.h"

#include <string.h>

struct relay_options {
	struct cli_workers workers;
	struct cli_admin admin;
	const char *rate;
	bool check;
};

#define OPTION(member) offsetof(struct relay_options, member)
#define WORKERS(member) OPTION(workers.member)
#define ADMIN(member) OPTION(admin.member)

static const struct pr_param params[] = {
	{ .name = "to",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.to),
	  .value = "SINK-URL",
	  .help = "send all messages to this sink and ignore the sinks and routes of the "
		  "configuration (postroom sinks lists all sinks)" },
	{ .name = "rate",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(rate),
	  .value = "N/s",
	  .help = "maximum rate of messages for the sink of --to, per second, minute or hour: "
		  "50/s, 30/m, 1000/h" },
	{ .name = "concurrency",
	  .type = PR_PARAM_INT,
	  .offset = WORKERS(config.concurrency),
	  .value = "N",
	  .max = PR_CONCURRENCY_MAX,
	  .help = "maximum number of messages in flight to that sink (default: chosen by the "
		  "sink)" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = WORKERS(config.drain),
	  .help = "stop when every message in scope is delivered or dead; a delayed message "
		  "without any attempt is not waited for" },
	{ .name = "check",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(check),
	  .help = "check the configuration, print the effective settings, and exit" },
	CLI_ADMIN_PARAM(ADMIN),
	{ .name = "namespace",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.scope.ns),
	  .value = "NAME",
	  .help = "only this namespace" },
	{ .name = "topic",
	  .type = PR_PARAM_STRING,
	  .offset = WORKERS(config.scope.topic),
	  .value = "PATTERN",
	  .help = "only topics that match the pattern; * matches any characters" },
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
	  .help = "time limit for publishing one message (default: the smaller of 10s and half the "
		  "lease)" },
	CLI_GRACE_PARAM(WORKERS),
	{ .name = "retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = WORKERS(config.retention_ms),
	  .value = "DUR",
	  .fallback = "7d",
	  .max = CLI_AGE_MAX_MS,
	  .help = "delete delivered messages after this time; 0 deletes them immediately, never "
		  "keeps them" },
	CLI_DEAD_RETENTION_PARAM(WORKERS),
	{ .name = "dedupe-retention",
	  .type = PR_PARAM_PERIOD,
	  .offset = WORKERS(config.dedupe_retention_ms),
	  .value = "DUR",
	  .fallback = "30d",
	  .max = CLI_AGE_MAX_MS,
	  .help = "keep the dedupe keys of deleted messages for this time; never keeps them "
		  "forever" },
	CLI_INBOX_RETENTION_PARAM(WORKERS),
	{ 0 },
};

/* The first options apply only to this run; the others are also settings of the file. */
#define SETTINGS 6

static bool read_tenant(struct pr_relay_config *config, struct pr_config *loaded)
{
	char *tenant = pr_arena_alloc(&loaded->arena, PR_UUID_SIZE);

	if (!tenant || !pr_uuid_normalize(config->scope.tenant_id, tenant))
		return false;
	config->scope.tenant_id = tenant;
	return true;
}

/* Sets the members without an option, and checks that the values are consistent. */
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
				 "give a --config FILE with sinks and routes");
	else if (!config->to && (options->rate || config->concurrency))
		pr_fault(faults,
			 "relay: --rate and --concurrency require --to; in a configuration, "
			 "set them per sink, for example sinks.NAME.rate");
	else if (loaded->route_count == 0)
		pr_fault(faults,
			 "%s: routes is missing, so no message would be delivered; see "
			 "postroom.yaml(5), or give --to",
			 loaded->file);
	if (config->scope.tenant_id && !read_tenant(config, loaded))
		pr_config_blame(loaded,
				"tenant takes a UUID, such as 0190a3b0-0000-7000-8000-00000000000a",
				faults);
	if (pr_relay_config_check(config, &err) < 0)
		pr_config_blame(loaded, err.text, faults);
	cli_admin_check(&options->admin, loaded, faults);
}

/*
 * Loads all settings from the file, the environment and the command line. A reload
 * loads them into other options while the first are in use. Options live as long as
 * their configuration.
 */
static int load(struct cli *cli, struct relay_options *options, struct pr_config **ret,
		struct pr_faults *faults, struct pr_err *err)
{
	struct pr_config_section sections[CLI_ADMIN_SECTIONS];
	const struct pr_config_input input = {
		.file = cli->global.config,
		.database = cli->global.db,
		.to = options->workers.config.to,
		.params = params + SETTINGS,
		.given = cli->given + SETTINGS,
		.target = options,
		.sections = sections,
	};
	struct pr_config *loaded = NULL;
	int status;

	cli_admin_sections(&options->admin, sections);
	status = pr_config_load(&input, &loaded, faults, err);
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

int cli_load_relay(struct cli *cli, const char *to, struct cli_loaded_relay *ret,
		   struct pr_faults *faults, struct pr_err *err)
{
	static const char *const nothing[sizeof(params) / sizeof(params[0])];
	struct relay_options *options = pr_arena_alloc(&cli->memory, sizeof(*options));
	struct pr_config_section sections[CLI_ADMIN_SECTIONS];
	const struct pr_config_input input = {
		.file = cli->global.config,
		.database = cli->global.db,
		.to = to,
		.params = params + SETTINGS,
		.given = nothing,
		.target = options,
		.sections = sections,
	};
	struct pr_config *loaded = NULL;
	int status;

	if (!options)
		return pr_err_nomem(err);
	memset(options, 0, sizeof(*options));
	cli_admin_sections(&options->admin, sections);
	options->workers.config.to = to;
	status = pr_config_load(&input, &loaded, faults, err);
	if (status < 0)
		return status;
	if (loaded->file || to)
		finish(cli, options, loaded, faults);
	else
		cli_workers_finish(&options->workers, cli);
	options->workers.config.url = loaded->database->text;
	*ret = (struct cli_loaded_relay){ options->workers.config, options->admin.config, loaded };
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

/* Context of the relay thread, of a reload and of the doctor. */
struct work {
	struct cli *cli;
	const struct pr_relay_config *config;
	const struct cli_admin *admin_config;
	const struct relay_options *given; /* the command line only, without the file */
	struct pr_relay *relay;		   /* NULL: it could not be opened */
	struct pr_admin *admin;		   /* NULL: not configured */
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

	if (status < 0)
		pr_metrics_count_refused_reload(relay);
	else
		status = pr_relay_reload(relay, &options.workers.config, &err);
	if (status >= 0)
		status = cli_admin_reload(&options.admin, work->admin, log, &err);
	if (status < 0 && status != POSTROOM_STOPPED) {
		pr_log_box(log, PR_LOG_ERROR, "RELOAD_REFUSED");
		pr_log_str(log, "error", err.text);
		pr_log_end(log);
	}
	pr_config_free(loaded);
	pr_faults_release(&faults);
}

/*
 * The doctor of the admin server. It reads the configuration anew, as `postroom doctor` does, so
 * that it also reports what a reload would refuse.
 */
static void examine_relay(void *context, const struct pr_stop *stop, pr_finding_fn fn,
			  void *fn_context)
{
	const struct work *work = context;
	struct relay_options options = *work->given;
	struct pr_doctor_admin admin = { 0 };
	struct pr_doctor_config config = { .relay = &options.workers.config,
					   .admin = &admin,
					   .file = work->cli->global.config,
					   .stop = stop };
	struct pr_faults faults = { 0 };
	struct pr_config *loaded = NULL;
	struct pr_err err = { 0 };

	if (load(work->cli, &options, &loaded, &faults, &err) < 0) {
		config.relay = work->config; /* as it was started */
		config.faults = faults.count > 0 ? pr_buf_text(&faults.text) : err.text;
		cli_describe_admin(&work->admin_config->config, &admin);
	} else {
		config.file_has_secrets = cli_file_has_secrets(loaded);
		cli_describe_admin(&options.admin.config, &admin);
	}
	pr_doctor_run(&config, fn, fn_context);
	pr_config_free(loaded);
	pr_faults_release(&faults);
}

/* The size of the backlog, for the progress bar; an error is ignored. */
static int64_t count_backlog(const struct pr_relay_config *relay)
{
	const struct pr_store_config config = { .url = relay->url, .schema = relay->schema };
	struct postroom_store *store = NULL;
	postroom_counts counts = { 0 };

	if (pr_store_open(&config, &store, NULL) >= 0)
		postroom_stats(store, NULL, &counts, NULL, NULL);
	pr_store_close(store);
	return counts.pending + counts.processing;
}

static int open_and_relay(struct cli_watch *watch, struct pr_err *err)
{
	struct work *work = watch->context;
	int status = pr_relay_make(work->config, &work->relay, err);

	/* Starts before the database is available, so that probes work during an outage. */
	if (status >= 0)
		status = cli_admin_open(work->admin_config, work->config, work->relay, &work->admin,
					err);
	if (status >= 0)
		status = pr_relay_ready(work->relay, err);
	if (status < 0)
		return status;
	if (work->config->drain && watch->cli->err_terminal)
		cli_watch_draw(watch, "drain", count_backlog(work->config));
	cli_watch_relay(watch, work->relay);
	return pr_relay_run(work->relay, err);
}

static int load_or_report(struct cli *cli, struct relay_options *options, struct pr_config **ret)
{
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status = CLI_DONE;

	if (load(cli, options, ret, &faults, &err) < 0)
		status = cli_config_fail(cli, &faults, &err);
	pr_faults_release(&faults);
	return status;
}

static int show_relay(struct cli *cli, const struct relay_options *options,
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

static int work_relay(struct cli *cli, struct relay_options *options,
		      const struct relay_options *given)
{
	struct work work = { .cli = cli,
			     .config = &options->workers.config,
			     .admin_config = &options->admin,
			     .given = given };
	struct cli_watch watch = {
		.cli = cli,
		.name = "relay",
		.context = &work,
		.run = open_and_relay,
		.reload = cli->global.config ? reload : NULL,
	};
	int status;

	options->admin.config.doctor = examine_relay;
	options->admin.config.doctor_context = &work;
	status = cli_watch(&watch);
	pr_admin_close(work.admin);
	pr_relay_close(work.relay);
	return status;
}

static int relay_run(struct cli *cli, void *given)
{
	struct relay_options *options = given;
	const struct relay_options pristine = *options;
	struct pr_config *loaded = NULL;
	int status = load_or_report(cli, options, &loaded);

	if (status != CLI_DONE)
		return status;
	if (options->check) {
		status = show_relay(cli, options, loaded);
	} else {
		status = work_relay(cli, options, &pristine);
	}
	pr_config_free(loaded);
	return status;
}

const struct cli_command cmd_relay = {
	.name = "relay",
	.synopsis = "--to SINK-URL [OPTIONS]\n--config FILE [OPTIONS]\n--check [OPTIONS]",
	.summary = "Deliver messages to sinks",
	.about = "Claims due messages, publishes them to the sink and settles the results. Any "
		 "number of relays may share a database.\n\nSIGTERM and SIGINT stop the relay: it "
		 "finishes or releases the messages in flight and exits 0. A second signal ends it "
		 "immediately. SIGHUP makes it reload its configuration, and file: sinks reopen "
		 "their files. No message is lost in any of these cases.\n\nThe sink is the one of "
		 "--to. Without --to, the sinks and routes of the configuration apply. The "
		 "configuration may also contain the other settings.",
	.examples = "postroom relay --to stdout: --drain\n"
		    "postroom relay --to file:/var/log/events.ndjson --topic 'orders.*'\n"
		    "postroom relay --to 'exec:./deliver.sh' --workers 4 --publish-timeout 5s\n"
		    "postroom relay --config postroom.yaml --check",
	.params = params,
	.options_size = sizeof(struct relay_options),
	.configured = true,
	.run = relay_run,
};
