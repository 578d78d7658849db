/* SPDX-License-Identifier: Apache-2.0 */
/* postroom consume: options of the handler and the source. */
#include "cli/admin.h"
#include "cli/examine.h"
#include "cli/watch.h"
#include "cli/workers.h"

#include "consume/consume.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A hanging handler blocks one worker for at most this time. */
#define TIMEOUT_MS 60000

/* Events that a worker posts concurrently. */
#define HTTP_AT_ONCE 32

struct consume_options {
	struct cli_workers workers;
	struct cli_admin admin;
	const char *handler;
	const char *from;
	const char *exec;
	const char *sql;
	const char *http;
	struct pr_identity identity;
	bool ordered;
	bool accept_replay;
	bool drain;
};

#define OPTION(member) offsetof(struct consume_options, member)
#define WORKERS(member) OPTION(workers.member)
#define ADMIN(member) OPTION(admin.member)

static const struct pr_param params[] = {
	{ .name = "handler",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(handler),
	  .value = "NAME",
	  .help = "name of the handler (the consumer group); each handler processes an event "
		  "once" },
	{ .name = "from",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(from),
	  .value = "URL",
	  .help = "redis://HOST:PORT/STREAM, kafka://HOST:PORT/TOPIC, nats://HOST:PORT/STREAM, "
		  "amqp://USER:PASSWORD@HOST:PORT/VHOST/QUEUE, or - for lines of JSON on stdin "
		  "(default: jobs that were submitted with postroom inbox submit)" },
	{ .name = "sql",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(sql),
	  .value = "STATEMENT",
	  .help = "run this statement in the transaction of the inbox, with the parameters 1 "
		  "payload, 2 id, 3 topic, 4 key, 5 headers, 6 tenant_id, 7 correlation_id" },
	{ .name = "exec",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(exec),
	  .value = "COMMAND",
	  .help = "run a shell command; it reads the payload from stdin and the other fields from "
		  "environment variables POSTROOM_…" },
	{ .name = "http",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(http),
	  .value = "URL",
	  .help = "POST the event to this URL, with its id as Idempotency-Key" },
	{ .name = "timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = WORKERS(config.publish_timeout_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 30LL * 86400000,
	  .help = "time limit per event; then the handler is ended and the attempt has failed "
		  "(default: 1m; for --sql at most half of the lease)" },
	{ .name = "ordered",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(ordered),
	  .help = "a failing event blocks later events of its topic and key" },
	{ .name = "id-header",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(identity.header),
	  .value = "NAME",
	  .help = "name of the header that carries the event id (default: the header that the "
		  "sinks of postroom set)" },
	{ .name = "id-path",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(identity.path),
	  .value = "PATH",
	  .help = "path of the payload member that contains the event id, for example "
		  "data.order.id" },
	{ .name = "accept-replay",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(accept_replay),
	  .help = "process redelivered events again although the inbox has purged them; without "
		  "this option, consume stops at the first one" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(drain),
	  .help = "stop when the source has no more events and every job is completed or dead" },
	CLI_ADMIN_PARAM(ADMIN),
	CLI_WORKERS_PARAMS(WORKERS),
	CLI_GRACE_PARAM(WORKERS),
	CLI_DEAD_RETENTION_PARAM(WORKERS),
	CLI_INBOX_RETENTION_PARAM(WORKERS),
	{ 0 },
};

static int check_handler(const struct consume_options *options, struct pr_err *err)
{
	int kinds = !!options->sql + !!options->exec + !!options->http;

	if (!options->handler)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: --handler NAME is missing: each handler sees an event "
				  "once");
	if (pr_name_check("consume: the name of a handler", options->handler, POSTROOM_HANDLER_MAX,
			  err) < 0)
		return err->status;
	if (kinds == 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: the handler is missing: give --sql STATEMENT, "
				  "--exec COMMAND or --http URL");
	if (kinds > 1)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: give only one of --sql, --exec and --http");
	if (options->exec && !options->exec[strspn(options->exec, " \t\n")])
		return pr_err_set(err, POSTROOM_INVALID, "consume: --exec needs a command");
	if (options->http && strncasecmp(options->http, "http://", 7) != 0 &&
	    strncasecmp(options->http, "https://", 8) != 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: --http takes http://… or https://…");
	return pr_identity_check(&options->identity, err);
}

/* Settings for exec: handlers, so that `postroom step` finds the job. */
static bool set_environment(const struct cli *cli, const struct consume_options *options)
{
	const char *schema = cli->global.schema;

	return setenv("POSTROOM_DB", cli->global.db, 1) == 0 &&
	       setenv("POSTROOM_HANDLER", options->handler, 1) == 0 &&
	       setenv("POSTROOM_SCHEMA", schema ? schema : "", 1) == 0;
}

/* One job per command at a time: a long job must not delay others. */
static void choose_sink(struct cli *cli, struct consume_options *options)
{
	struct pr_relay_config *config = &options->workers.config;

	if (options->exec) {
		config->to = pr_arena_printf(&cli->memory, "exec:%s", options->exec);
		config->batch_size = 1;
	} else if (options->http) {
		config->to = options->http;
		if (config->batch_size > HTTP_AT_ONCE)
			config->batch_size = HTTP_AT_ONCE;
	}
	config->renews_leases = !options->sql;
}

static int prepare_consume(struct cli *cli, struct consume_options *options,
			   struct pr_consume_config *ret, struct pr_err *err)
{
	struct pr_relay_config *config = &options->workers.config;
	int64_t half_ms = config->lease_ms / 2;

	cli_workers_finish(&options->workers, cli);
	ret->batch_size = (size_t)config->batch_size;
	config->url = cli->global.db;
	config->table = &pr_table_inbox;
	config->scope.ns = options->handler;
	config->unordered = !options->ordered;
	config->retention_ms = config->dedupe_retention_ms = -1;
	choose_sink(cli, options);
	if (!options->sql && !config->to)
		return pr_err_nomem(err);
	if (options->sql && config->publish_timeout_ms > half_ms)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"consume: with --sql the timeout is half of the lease at most; make "
			"one shorter or the other longer");
	if (!config->publish_timeout_ms)
		config->publish_timeout_ms = options->sql && half_ms < TIMEOUT_MS ? half_ms
										  : TIMEOUT_MS;
	if (pr_relay_config_check(config, err) < 0)
		return pr_err_prefix(err, "consume");
	ret->relay = *config;
	ret->statement = options->sql;
	ret->from = options->from;
	ret->identity = options->identity;
	ret->ordered = options->ordered;
	ret->accept_replay = options->accept_replay;
	ret->drain = options->drain;
	return POSTROOM_OK;
}

struct work {
	const struct pr_consume_config *config;
	const struct cli_admin *admin_config;
	struct pr_admin *admin;	    /* NULL: not configured */
	struct pr_consume *consume; /* NULL: it could not be opened */
};

/* The doctor of the admin server. A handler is not a sink, so it checks the database only. */
static void examine_consume(void *context, const struct pr_stop *stop, pr_finding_fn fn,
			    void *fn_context)
{
	const struct work *work = context;
	struct pr_relay_config relay = work->config->relay;
	struct pr_doctor_admin admin = { 0 };
	const struct pr_doctor_config config = { .relay = &relay, .admin = &admin, .stop = stop };

	relay.to = NULL;
	relay.scope = (struct pr_scope){ 0 }; /* it was one of the inbox */
	cli_describe_admin(&work->admin_config->config, &admin);
	pr_doctor_run(&config, fn, fn_context);
}

static int open_admin(void *context, struct pr_relay *relay, struct pr_err *err)
{
	struct work *work = context;

	return cli_admin_open(work->admin_config, &work->config->relay, relay, &work->admin, err);
}

static void close_admin(void *context)
{
	struct work *work = context;

	pr_admin_close(work->admin);
	work->admin = NULL;
}

/* A consumer reads only database:, admin: and health: from the configuration. */
static int load_admin(struct cli *cli, struct cli_admin *admin, struct pr_config **ret)
{
	struct pr_config_section sections[CLI_ADMIN_SECTIONS];
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status = CLI_DONE;

	cli_admin_sections(admin, sections);
	if (pr_config_load_sections(cli->global.config, sections, ret, &faults, &err) >= 0)
		cli_admin_check(admin, *ret, &faults);
	if (faults.count > 0 || err.status < 0)
		status = cli_config_fail(cli, &faults, &err);
	pr_faults_release(&faults);
	return status;
}

static int open_and_consume(struct cli_watch *watch, struct pr_err *err)
{
	struct work *work = watch->context;
	int status = pr_consume_open(work->config, &work->consume, err);

	if (status < 0)
		return status;
	cli_watch_relay(watch, pr_consume_relay(work->consume));
	return pr_consume_run(work->consume, err);
}

static int consume_run(struct cli *cli, void *given)
{
	struct consume_options *options = given;
	struct pr_consume_config config = { 0 };
	struct work work = { .config = &config, .admin_config = &options->admin };
	struct cli_watch watch = {
		.cli = cli, .name = "consume", .context = &work, .run = open_and_consume
	};
	struct pr_config *loaded = NULL;
	struct pr_err err = { 0 };
	int status = check_handler(options, &err);

	if (status >= 0)
		status = prepare_consume(cli, options, &config, &err);
	if (status < 0)
		return cli_usage(cli, "%s", err.text);
	cli->log.box = pr_table_inbox.box;
	options->admin.config.doctor = examine_consume;
	options->admin.config.doctor_context = &work;
	config.beside.open = open_admin;
	config.beside.close = close_admin;
	config.beside.context = &work;
	status = load_admin(cli, &options->admin, &loaded);
	if (status == CLI_DONE && !set_environment(cli, options))
		status = cli_fail(cli, "out of memory");
	if (status == CLI_DONE)
		status = cli_watch(&watch);
	pr_consume_close(work.consume);
	pr_config_free(loaded);
	return status;
}

const struct cli_command cmd_consume = {
	.name = "consume",
	.synopsis = "--handler NAME [--from URL] --sql STATEMENT [OPTIONS]\n"
		    "--handler NAME [--from URL] --exec COMMAND [OPTIONS]\n"
		    "--handler NAME [--from URL] --http URL [OPTIONS]",
	.summary = "Run a handler once for each event or submitted job",
	.about = "Reads events from a broker, inserts them into the inbox and runs the handler "
		 "once for each. It acknowledges events to the broker only after the inbox has "
		 "committed. With --sql, the event and its effect are one transaction. Without "
		 "--from, it processes the jobs that postroom inbox submit has written.\n\nFailed "
		 "events are retried from the inbox with backoff. After their last attempt they "
		 "become dead letters; see postroom inbox list and retry. They do not block the "
		 "queue of the broker.\n\nIt runs until SIGTERM or SIGINT. Then it finishes or "
		 "releases the events in flight and exits 0. Any number of consumers may share a "
		 "handler.",
	.examples = "postroom consume --handler books --from redis://localhost/orders \\\n"
		    "  --sql \"INSERT INTO ledger SELECT \\$2, (\\$1->>'cents')::int\"\n"
		    "postroom consume --handler mail --from amqp://localhost/%2F/orders \\\n"
		    "  --exec ./send-mail.sh --timeout 30s\n"
		    "postroom consume --handler import --exec ./import.sh --workers 4 --timeout 1h",
	.params = params,
	.options_size = sizeof(struct consume_options),
	.run = consume_run,
};
