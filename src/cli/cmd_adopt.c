/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "adopt/adopt.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES 5

struct adopt_options {
	const char *preset;
	const char *zone;
	struct pr_param_list columns;
	int64_t chunk;
	bool dry_run;
	bool status;
	bool undo;
	bool keys;
	bool required;
	const char *key_sql;
	bool yes;
};

#define OPTION(member) offsetof(struct adopt_options, member)

static const struct pr_param params[] = {
	{ .name = "dry-run",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(dry_run),
	  .help = "print the mapping, sample rows and all SQL with its locks as SQL, and change "
		  "nothing" },
	{ .name = "preset",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(preset),
	  .value = "NAME",
	  .help = "layout of a library: brighter, cap, debezium, django-jaiminho, "
		  "django-outbox-pattern, eventuate, kafka-worker, modkit, namastack, oagudo-outbox, "
		  "open-outbox, pg-transactional-outbox, rails-outbox, redis-relay, sbmt-outbox, "
		  "spring-modulith or watermill; recognized by its columns if not given" },
	{ .name = "column",
	  .type = PR_PARAM_LIST,
	  .offset = OPTION(columns),
	  .value = "OURS=THEIRS",
	  .help = "map a column of postroom_outbox to a column of the table, or to a constant in "
		  "single quotes; also done=COLUMN, done=COLUMN:VALUE, done=delete, done=none, "
		  "open=VALUE,VALUE, and only=COLUMN:VALUE,VALUE for some of the rows. An empty THEIRS leaves the column out. May be repeated" },
	{ .name = "time-zone",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(zone),
	  .value = "TZ",
	  .help = "time zone of columns that have none, such as UTC" },
	{ .name = "chunk",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(chunk),
	  .value = "N",
	  .fallback = "1000",
	  .min = 1,
	  .max = 100000,
	  .help = "maximum number of waiting rows to move per transaction" },
	{ .name = "status",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(status),
	  .help = "print the state of the adoption, and the rejected rows" },
	{ .name = "undo",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(undo),
	  .help = "drop the triggers and hand undelivered messages back to the table" },
	{ .name = "keys",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(keys),
	  .help = "only give the table itself unique keys: add the column of --column "
		  "dedupe_key=NAME (default idempotency_key), fill it in chunks, and build a unique "
		  "index without blocking writers, together with the tenant" },
	{ .name = "key-sql",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(key_sql),
	  .value = "EXPRESSION",
	  .help = "with --keys: compute the keys by this SQL expression of the row; random UUIDs if "
		  "not given" },
	{ .name = "require-keys",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(required),
	  .help = "with --keys: also make the column NOT NULL, after all producers write it" },
	{ .name = "yes",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(yes),
	  .help = "do not ask for confirmation" },
	{ 0 },
};

static struct pr_stop stop;

static void request_stop(int number)
{
	(void)number;
	pr_stop_request(&stop, 0);
}

/* The first Ctrl-C ends the command after the current chunk. */
static int catch_adopt_signals(struct pr_err *err)
{
	struct sigaction action = { .sa_handler = request_stop, .sa_flags = SA_RESTART };
	int status = pr_stop_init(&stop, err);

	if (status >= 0) {
		sigaction(SIGINT, &action, NULL);
		sigaction(SIGTERM, &action, NULL);
	}
	return status;
}

static void put_notes(struct cli *cli, const struct pr_adopt *adopt, const char *prefix)
{
	const char *note = pr_buf_text(&adopt->note);

	while (*note) {
		size_t len = strcspn(note, "\n");

		pr_buf_puts(&cli->out, prefix);
		cli_put_lines(&cli->out, note, len);
		pr_buf_putc(&cli->out, '\n');
		note += len + (note[len] == '\n');
	}
}

/* With --dry-run, lines that are not SQL are comments. */
static void put_mapping(struct cli *cli, const struct pr_adopt *adopt, const char *prefix)
{
	PR_CLEANUP_BUF struct pr_buf unused = { 0 };

	pr_buf_printf(&cli->out, "%stable            ", prefix);
	cli_put_text(&cli->out, adopt->name);
	pr_buf_printf(&cli->out, "\n");
	if (adopt->preset)
		pr_buf_printf(&cli->out, "%spreset           %s\n", prefix, adopt->preset);
	for (size_t i = 0; i < PR_ADOPT_PARTS; i++) {
		const char *text = adopt->parts[i];

		if (!text || !*text)
			continue;
		pr_buf_printf(&cli->out, "%s%-16s ", prefix, pr_adopt_part_names[i]);
		cli_put_text(&cli->out, text);
		pr_buf_putc(&cli->out, '\n');
	}
	pr_adopt_put_unused(adopt, &unused);
	if (unused.len > 0) {
		pr_buf_printf(&cli->out, "%snot delivered    ", prefix);
		cli_put_text(&cli->out, pr_buf_text(&unused));
		pr_buf_putc(&cli->out, '\n');
	}
	put_notes(cli, adopt, prefix);
}

static void put_plan_line(void *context, const char *text)
{
	struct cli *cli = context;

	cli_put_text(&cli->out, text);
	pr_buf_putc(&cli->out, '\n');
}

static void put_sql(void *context, const char *text)
{
	struct cli *cli = context;

	pr_buf_putc(&cli->out, '\n');
	cli_put_lines(&cli->out, text, strlen(text));
}

static void put_sql_line(void *context, const char *text)
{
	pr_buf_puts(&((struct cli *)context)->out, "-- producers need: ");
	put_plan_line(context, text);
}

static void put_comment(void *context, const char *text)
{
	pr_buf_puts(&((struct cli *)context)->out, "-- ");
	put_plan_line(context, text);
}

static void put_samples(struct cli *cli, struct pr_adopt *adopt, bool as_comment)
{
	pr_adopt_text_fn put = as_comment ? put_comment : put_plan_line;
	struct pr_err err = { 0 };
	int count;

	pr_buf_putc(&cli->out, '\n');
	put(cli, "Rows as they would be delivered:");
	count = pr_adopt_sample(adopt, SAMPLES, put, cli, &err);
	if (count == 0)
		put(cli, "(there are no rows yet)");
	if (count < 0) {
		put(cli, "A sample row would be rejected:");
		put(cli, err.text);
	}
}

/* With --dry-run: the cost is a reason to decide against it. */
static void put_cost(struct cli *cli, struct pr_adopt *adopt)
{
	struct pr_adopt_cost cost;
	struct pr_err err = { 0 };

	pr_buf_putc(&cli->out, '\n');
	if (pr_adopt_measure(adopt, &cost, &err) < 0) {
		pr_buf_puts(&cli->out, "-- cost: not measured: ");
		put_plan_line(cli, err.text);
		return;
	}
	if (cost.rows == 0) {
		pr_buf_puts(&cli->out, "-- cost: not measured: no row of the table can be mirrored yet\n");
		return;
	}
	pr_buf_printf(&cli->out,
		      "-- cost: measured with %lld rows on temporary copies; each commit, and triggers of "
		      "the table, come on top\n"
		      "-- cost: INSERT of one row: %lld us, mirrored %lld us\n"
		      "-- cost: INSERT of many rows: %.1f us per row, mirrored %.1f us (%.1f times)\n",
		      (long long)cost.rows, (long long)cost.single_us[0], (long long)cost.single_us[1],
		      (double)cost.bulk_us[0] / (double)cost.rows,
		      (double)cost.bulk_us[1] / (double)cost.rows,
		      (double)cost.bulk_us[1] / (double)(cost.bulk_us[0] > 0 ? cost.bulk_us[0] : 1));
}

static int explain(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct pr_err err = { 0 };
	int status;

	put_mapping(cli, adopt, "-- ");
	put_samples(cli, adopt, true);
	put_cost(cli, adopt);
	status = pr_adopt_explain(adopt, options->chunk, put_sql, cli, &err);
	if (status >= 0)
		status = pr_adopt_missing_grants(adopt, put_sql_line, cli, &err);
	return status < 0 ? cli_store_fail(cli, &err) : CLI_DONE;
}

static void put_status_text(struct cli *cli, const struct pr_adopt *adopt,
			    const struct pr_adopt_status *status)
{
	const struct {
		const char *name;
		int64_t number;
	} lines[] = {
		{ "tables and partitions", status->targets },
		{ "of these, mirrored", status->mirrored },
		{ "moved from the backlog", adopt->moved },
		{ "waiting in the table", status->open },
		{ "neither waiting nor done", status->other },
		{ "rejected", status->rejected },
		{ "pending in Postroom", status->pending },
		{ "in flight", status->processing },
		{ "delivered", status->delivered },
		{ "dead", status->dead },
	};

	pr_buf_printf(&cli->out, "%-26s%s\n", "adopted since", adopt->since);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		pr_buf_printf(&cli->out, "%-26s%lld\n", lines[i].name, (long long)lines[i].number);
	if (status->mirrored < status->targets)
		pr_buf_puts(&cli->out, "Run \"postroom adopt\" again to create the missing triggers.\n");
	if (status->open > status->rejected)
		pr_buf_puts(&cli->out, "Run \"postroom adopt\" again to move the waiting rows.\n");
	if (status->other > 0)
		pr_buf_puts(&cli->out, "Rows that neither wait nor are done belong to the old dispatcher. "
				       "After it has stopped, set their status back to a waiting one; the "
				       "mirror then takes them.\n");
	put_notes(cli, adopt, "");
}

static int print_adopt_status(struct cli *cli, struct pr_adopt *adopt)
{
	struct pr_adopt_status status;
	struct pr_err err = { 0 };

	if (pr_adopt_status(adopt, &status, &err) < 0)
		return cli_store_fail(cli, &err);
	if (!cli->global.json) {
		put_status_text(cli, adopt, &status);
		if (pr_adopt_rejects(adopt, put_plan_line, cli, &err) < 0)
			return cli_store_fail(cli, &err);
		return CLI_DONE;
	}
	cli_begin_object(cli);
	cli_put_member(&cli->out, "table", adopt->name);
	cli_put_int_member(&cli->out, "tables", status.targets);
	cli_put_int_member(&cli->out, "mirrored_tables", status.mirrored);
	cli_put_int_member(&cli->out, "moved", adopt->moved);
	cli_put_int_member(&cli->out, "waiting", status.open);
	cli_put_int_member(&cli->out, "other", status.other);
	cli_put_int_member(&cli->out, "rejected", status.rejected);
	cli_put_int_member(&cli->out, "pending", status.pending);
	cli_put_int_member(&cli->out, "processing", status.processing);
	cli_put_int_member(&cli->out, "delivered", status.delivered);
	cli_put_int_member(&cli->out, "dead", status.dead);
	cli_end_object(cli);
	return CLI_DONE;
}

static void show_progress(void *context, int64_t done, int64_t total)
{
	struct cli_progress *progress = context;

	progress->total = total;
	cli_progress_show(progress, done, done);
}

static void report_pause(void *context, const char *why)
{
	struct cli_progress *progress = context;

	cli_progress_end(progress);
	dprintf(STDERR_FILENO, "postroom: adopt: paused: %s\n", why);
}

static int print_result(struct cli *cli, const struct pr_adopt_progress *progress, const char *verb)
{
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, verb, progress->moved);
		cli_put_int_member(&cli->out, "rejected", progress->rejected);
		cli_put_int_member(&cli->out, "locked", progress->locked);
		cli_end_object(cli);
	} else {
		const char *text = strcmp(verb, "moved") == 0  ? "moved"
				   : strcmp(verb, "keys") == 0 ? "got a key"
							       : "handed back";

		pr_buf_printf(&cli->out, "%lld rows %s\n", (long long)progress->moved, text);
		if (progress->rejected > 0)
			pr_buf_printf(&cli->out,
				      "%lld rows cannot be messages and stay in the table; "
				      "\"postroom adopt TABLE --status\" prints the reasons\n",
				      (long long)progress->rejected);
	}
	if (progress->locked > 0 && strcmp(verb, "handed_back") == 0)
		return cli_fail(cli, "adopt: %lld messages are in flight, or their rows are locked by "
				     "other transactions; let the relay settle them, then run the command "
				     "again to hand back the rest",
				(long long)progress->locked);
	if (progress->locked > 0)
		return cli_fail(cli, "adopt: %lld rows are locked by other transactions; run the command "
				     "again when those have ended",
				(long long)progress->locked);
	return CLI_DONE;
}

/* The audit event of a step that has changed something. */
static void log_step(struct cli *cli, const struct pr_adopt *adopt, const char *step, int64_t count)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	pr_buf_printf(&text, "table=%s", adopt->name);
	cli_log_action_on(cli, step, pr_buf_text(&text), count);
}

static int run_chunks(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct cli_progress bar;
	struct pr_adopt_progress progress = {
		.chunk = options->chunk, .stop = &stop, .show = show_progress, .pause = report_pause,
		.context = &bar
	};
	struct pr_err err = { 0 };
	int status;

	cli_progress_begin(&bar, cli, options->undo ? "undo" : "adopt", 0);
	if (options->undo)
		status = pr_adopt_undo(adopt, &progress, &err);
	else
		status = pr_adopt_backlog(adopt, &progress, &err);
	cli_progress_end(&bar);
	if (options->undo ? status >= 0 || progress.moved > 0 : progress.moved > 0)
		log_step(cli, adopt, options->undo ? "adopt-undo" : "adopt-backlog", progress.moved);
	if (status < 0)
		return cli_fail(cli, "%s", err.text);
	return print_result(cli, &progress, options->undo ? "handed_back" : "moved");
}

static int refuse_without_grants(struct cli *cli, struct pr_adopt *adopt)
{
	struct pr_err err = { 0 };
	int missing = pr_adopt_missing_grants(adopt, put_plan_line, cli, &err);

	if (missing < 0)
		return cli_store_fail(cli, &err);
	if (missing == 0)
		return CLI_DONE;
	return cli_fail(cli, "adopt: producers of %s lack privileges, so their rows could not be mirrored; "
			     "run the %d GRANTs above as the owner of the tables, then run the command "
			     "again",
			adopt->name, missing);
}

static bool is_confirmed(const char *question)
{
	return isatty(STDIN_FILENO) && cli_confirm(question);
}

static int start_mirror(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct pr_err err = { 0 };
	int status;

	if (!cli->global.json) {
		put_mapping(cli, adopt, "");
		put_samples(cli, adopt, false);
		pr_buf_putc(&cli->out, '\n');
		cli_flush(cli);
	}
	if (!options->yes &&
	    !is_confirmed("Mirror this table? Stop the old dispatcher first, unless it locks the "
			  "rows that it sends (FOR UPDATE)."))
		return cli_fail(cli, "adopt: nothing was changed; confirm on a terminal, or give --yes");
	status = pr_adopt_create_tables(adopt, &err);
	if (status < 0)
		return cli_fail(cli, "%s", err.text);
	if (refuse_without_grants(cli, adopt) != CLI_DONE)
		return CLI_FAILED;
	status = pr_adopt_mirror(adopt, &stop, &err);
	if (status < 0)
		return cli_fail(cli, "%s", err.text);
	if (status > 0)
		log_step(cli, adopt, "adopt-mirror", status);
	return CLI_DONE;
}

static int put_key_cost(struct cli *cli, struct pr_adopt *adopt, const char *prefix)
{
	struct pr_err err = { 0 };
	int64_t ms = -1;

	if (pr_adopt_measure_keys(adopt, &ms, &err) < 0)
		return cli_store_fail(cli, &err);
	if (ms >= 0)
		pr_buf_printf(&cli->out,
			      "%sbuilding the unique index makes writers wait: it took %lld ms on a copy in "
			      "memory\n",
			      prefix, (long long)ms);
	return CLI_DONE;
}

static int explain_keys(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct pr_err err = { 0 };

	put_notes(cli, adopt, "-- ");
	if (put_key_cost(cli, adopt, "-- cost: ") != CLI_DONE)
		return CLI_FAILED;
	if (pr_adopt_explain_keys(adopt, options->required, put_sql, cli, &err) < 0)
		return cli_store_fail(cli, &err);
	return CLI_DONE;
}

static int run_keys(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct cli_progress bar;
	struct pr_adopt_progress progress = {
		.chunk = options->chunk, .stop = &stop, .show = show_progress, .pause = report_pause,
		.context = &bar
	};
	struct pr_err err = { 0 };
	int status;

	if (options->dry_run)
		return explain_keys(cli, adopt, options);
	if (catch_adopt_signals(&err) < 0)
		return cli_fail(cli, "%s", err.text);
	if (!cli->global.json)
		put_notes(cli, adopt, "");
	if (!options->yes && put_key_cost(cli, adopt, "") != CLI_DONE)
		return CLI_FAILED;
	cli_flush(cli);
	if (!options->yes && !is_confirmed("Add unique keys to this table?"))
		return cli_fail(cli, "adopt: nothing was changed; confirm on a terminal, or give --yes");
	cli_progress_begin(&bar, cli, "keys", 0);
	status = pr_adopt_keys(adopt, &progress, options->required, &err);
	cli_progress_end(&bar);
	if (status >= 0 || progress.moved > 0)
		log_step(cli, adopt, options->required ? "adopt-require-keys" : "adopt-keys",
			 progress.moved);
	if (status < 0)
		return cli_fail(cli, "%s", err.text);
	return print_result(cli, &progress, "keys");
}

static int run_adoption(struct cli *cli, struct pr_adopt *adopt, const struct adopt_options *options)
{
	struct pr_err err = { 0 };
	int status = CLI_DONE;

	if (options->dry_run)
		return explain(cli, adopt, options);
	if ((options->status || options->undo) && !adopt->adopted)
		return cli_fail(cli, "adopt: %s is not adopted; run \"postroom adopt\" without --status "
				     "and --undo first",
				adopt->name);
	if (options->status)
		return print_adopt_status(cli, adopt);
	if (catch_adopt_signals(&err) < 0)
		return cli_fail(cli, "%s", err.text);
	if (options->undo && !options->yes &&
	    !is_confirmed("Drop the mirror and hand undelivered messages back?"))
		return cli_fail(cli, "adopt: nothing was changed; confirm on a terminal, or give --yes");
	if (!options->undo)
		status = start_mirror(cli, adopt, options);
	return status == CLI_DONE ? run_chunks(cli, adopt, options) : status;
}

static int adopt_run(struct cli *cli, void *given)
{
	const struct adopt_options *options = given;
	const struct pr_adopt_wish wish = { .table = cli->args[0],
					    .preset = options->preset,
					    .zone = options->zone,
					    .columns = options->columns.items,
					    .column_count = options->columns.count,
					    .key_sql = options->key_sql,
					    .existing = options->status || options->undo };
	struct postroom_store *store = NULL;
	struct pr_adopt adopt = { 0 };
	struct pr_err err = { 0 };
	int status;

	if (options->dry_run + options->status + options->undo > 1)
		return cli_usage(cli, "adopt: --dry-run, --status and --undo exclude each other");
	if (options->keys && (options->status || options->undo))
		return cli_usage(cli, "adopt: --keys excludes --status and --undo; to undo it, drop the "
				      "index and the column");
	if (!options->keys && (options->required || options->key_sql))
		return cli_usage(cli, "adopt: --require-keys and --key-sql need --keys");
	status = cli_open_store(cli, CLI_OPEN_EXISTING, &store);
	if (status != CLI_DONE)
		return status;
	if ((options->keys ? pr_adopt_open_keys : pr_adopt_open)(&adopt, store, &wish, &err) < 0)
		status = cli_fail(cli, "%s", err.text);
	else if (options->keys)
		status = run_keys(cli, &adopt, options);
	else
		status = run_adoption(cli, &adopt, options);
	pr_adopt_release(&adopt);
	pr_store_close(store);
	return status;
}

const struct cli_command cmd_adopt = {
	.name = "adopt",
	.synopsis = "TABLE [OPTIONS]",
	.summary = "Adopt an existing outbox table",
	.about = "Delivers the rows of an existing outbox table through Postroom, without a change of "
		 "the producers. A trigger copies new rows into postroom_outbox, in the transaction "
		 "of the producer, and marks them as done in the table. Then waiting rows are moved "
		 "in chunks. A row is marked in the transaction that writes its message, so it has "
		 "one sender at any time. The command may be killed and repeated at any moment.\n\n"
		 "The columns are recognized by their names. --dry-run prints the mapping, five rows "
		 "as they would be delivered, the cost for producers, and all SQL with its locks; the output is SQL. "
		 "A row that cannot be a "
		 "message never fails the producer: it stays in the table, and its reason is in "
		 "postroom_adopt_rejects.\n\nStop the old dispatcher before, unless it locks the rows "
		 "that it sends. If messages have keys, start the relay after the backlog is moved. "
		 "--undo drops the triggers and hands undelivered messages back.",
	.examples = "postroom adopt outbox --dry-run\n"
		    "postroom adopt sales.outbox_events --column topic=event_name --yes\n"
		    "postroom adopt outbox --column done=status:SENT --column open=NEW,RETRY\n"
		    "postroom adopt outbox --status\n"
		    "postroom adopt outbox --undo\n"
		    "postroom adopt outbox --keys --key-sql \"md5(id::text)::uuid\"",
	.params = params,
	.options_size = sizeof(struct adopt_options),
	.min_args = 1,
	.max_args = 1,
	.run = adopt_run,
};
