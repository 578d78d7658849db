/* SPDX-License-Identifier: Apache-2.0 */
/* The consumer's command: which handler, from where, and how. */
#include "cli/watch.h"
#include "cli/workers.h"

#include "consume/consume.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A handler that hangs holds up one worker for so long. */
#define TIMEOUT_MS 60000

/* What a worker posts at once. */
#define HTTP_AT_ONCE 32

struct consume_options {
	struct cli_workers workers;
	const char *handler;
	const char *from;
	const char *exec;
	const char *sql;
	const char *http;
	struct pr_identity identity;
	bool ordered;
	bool drain;
};

#define OPTION(member) offsetof(struct consume_options, member)
#define WORKERS(member) OPTION(workers.member)

static const struct pr_param params[] = {
	{ .name = "handler",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(handler),
	  .value = "NAME",
	  .help = "whose events these are: each handler sees an event once" },
	{ .name = "from",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(from),
	  .value = "URL",
	  .help = "redis://HOST:PORT/STREAM, kafka://HOST:PORT/TOPIC, nats://HOST:PORT/STREAM, "
		  "amqp://USER:PASSWORD@HOST:PORT/VHOST/QUEUE, or - for lines of JSON on stdin "
		  "(default: what was submitted with postroom inbox submit)" },
	{ .name = "sql",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(sql),
	  .value = "STATEMENT",
	  .help = "run it in the inbox's transaction, with the parameters 1 payload, 2 id, 3 topic, "
		  "4 key, 5 headers" },
	{ .name = "exec",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(exec),
	  .value = "COMMAND",
	  .help = "run a shell command, the payload on its stdin, the rest as POSTROOM_… in its "
		  "environment" },
	{ .name = "http",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(http),
	  .value = "URL",
	  .help = "POST it, with the event's id as Idempotency-Key" },
	{ .name = "timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = WORKERS(config.publish_timeout_ms),
	  .value = "DUR",
	  .min = 1,
	  .max = 30LL * 86400000,
	  .help = "what one event may take; then the handler is ended and has failed (default: 1m; "
		  "for --sql half of the lease at most)" },
	{ .name = "ordered",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(ordered),
	  .help = "later events of a failing event's topic and key wait behind it" },
	{ .name = "id-header",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(identity.header),
	  .value = "NAME",
	  .help = "events are known by this header (default: the id that postroom's sinks give them)" },
	{ .name = "id-path",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(identity.path),
	  .value = "PATH",
	  .help = "events are known by this member of the payload, as in data.order.id" },
	{ .name = "drain",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(drain),
	  .help = "stop when the source is silent and every job is completed or dead" },
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
				  "consume: say what is to be done with an event: --sql STATEMENT, "
				  "--exec COMMAND or --http URL");
	if (kinds > 1)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: a handler is one of --sql, --exec and --http, not "
				  "several");
	if (options->exec && !options->exec[strspn(options->exec, " \t\n")])
		return pr_err_set(err, POSTROOM_INVALID, "consume: --exec needs a command");
	if (options->http && strncasecmp(options->http, "http://", 7) != 0 &&
	    strncasecmp(options->http, "https://", 8) != 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: --http takes http://… or https://…");
	return pr_identity_check(&options->identity, err);
}

/* Where a command goes that is to be found by `postroom step`. */
static bool set_environment(const struct cli *cli, const struct consume_options *options)
{
	const char *schema = cli->global.schema;

	return setenv("POSTROOM_DB", cli->global.db, 1) == 0 &&
	       setenv("POSTROOM_HANDLER", options->handler, 1) == 0 &&
	       setenv("POSTROOM_SCHEMA", schema ? schema : "", 1) == 0;
}

/* One job at a time for a command: what takes long must not sit on others. */
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
	config->beats = !options->sql;
}

static int prepare(struct cli *cli, struct consume_options *options,
		   struct pr_consume_config *ret, struct pr_err *err)
{
	struct pr_relay_config *config = &options->workers.config;
	int64_t half_ms = config->lease_ms / 2;

	cli_workers_finish(&options->workers, cli);
	ret->batch_size = (size_t)config->batch_size;
	config->url = cli->global.db;
	config->table = &pr_table_inbox;
	config->scope.ns = options->handler;
	config->loose = !options->ordered;
	config->retention_ms = config->dedupe_retention_ms = -1;
	choose_sink(cli, options);
	if (!options->sql && !config->to)
		return pr_err_nomem(err);
	if (options->sql && config->publish_timeout_ms > half_ms)
		return pr_err_set(err, POSTROOM_INVALID,
				  "consume: with --sql the timeout is half of the lease at most; make "
				  "one shorter or the other longer");
	if (!config->publish_timeout_ms)
		config->publish_timeout_ms = options->sql && half_ms < TIMEOUT_MS ? half_ms :
										    TIMEOUT_MS;
	if (pr_relay_config_check(config, err) < 0)
		return pr_err_prefix(err, "consume");
	ret->relay = *config;
	ret->statement = options->sql;
	ret->from = options->from;
	ret->identity = options->identity;
	ret->ordered = options->ordered;
	ret->drain = options->drain;
	return POSTROOM_OK;
}

struct work {
	const struct pr_consume_config *config;
	struct pr_consume *consume; /* NULL: it could not be opened */
};

static int open_and_run(struct cli_watch *watch, struct pr_err *err)
{
	struct work *work = watch->context;
	int status = pr_consume_open(work->config, &work->consume, err);

	if (status < 0)
		return status;
	cli_watch_relay(watch, pr_consume_relay(work->consume));
	return pr_consume_run(work->consume, err);
}

static int run(struct cli *cli, void *given)
{
	struct consume_options *options = given;
	struct pr_consume_config config = { 0 };
	struct work work = { .config = &config };
	struct cli_watch watch = {
		.cli = cli, .name = "consume", .context = &work, .run = open_and_run
	};
	struct pr_err err = { 0 };
	int status = check_handler(options, &err);

	if (status >= 0)
		status = prepare(cli, options, &config, &err);
	if (status < 0)
		return cli_usage(cli, "%s", err.text);
	cli->log.box = pr_table_inbox.box;
	if (!set_environment(cli, options))
		return cli_fail(cli, "out of memory");
	status = cli_watch(&watch);
	pr_consume_close(work.consume);
	return status;
}

const struct cli_command cmd_consume = {
	.name = "consume",
	.synopsis = "--handler NAME [--from URL] --sql STATEMENT [OPTIONS]\n"
		    "--handler NAME [--from URL] --exec COMMAND [OPTIONS]\n"
		    "--handler NAME [--from URL] --http URL [OPTIONS]",
	.summary = "Run a handler once for each event or submitted job",
	.about = "Reads events from a broker into the inbox and has the handler take them on, each "
		 "once; the broker is told only after the inbox has committed. With --sql the event and "
		 "its effect are one transaction. What fails is tried again from the inbox with "
		 "backoff, and is dead there after its last attempt, for postroom inbox list and "
		 "retry; the broker's queue moves on. Without --from it works on what was submitted "
		 "with postroom inbox submit.\n\n"
		 "It runs until SIGTERM or SIGINT: then it finishes or gives back what is in flight and "
		 "exits 0. Any number of consumers may share a handler.",
	.examples = "postroom consume --handler books --from redis://localhost/orders \\\n"
		    "  --sql \"INSERT INTO ledger SELECT \\$2, (\\$1->>'cents')::int\"\n"
		    "postroom consume --handler mail --from amqp://localhost/%2F/orders \\\n"
		    "  --exec ./send-mail.sh --timeout 30s\n"
		    "postroom consume --handler import --exec ./import.sh --workers 4 --timeout 1h",
	.params = params,
	.options_size = sizeof(struct consume_options),
	.run = run,
};
