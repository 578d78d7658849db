/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/time.h"

#include <errno.h>
#include <stdio.h>

/* SQLite's lock has no queue: beside busy producers the moment for a migration may come late. */
#define MIGRATE_BUSY_WAIT_MS 30000

struct migrate_options {
	bool dry_run;
	bool status;
};

static const struct pr_param params[] = {
	{ .name = "dry-run",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct migrate_options, dry_run),
	  .help = "print the SQL that would run, and change nothing" },
	{ .name = "status",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct migrate_options, status),
	  .help = "list the applied migrations, with their times and program versions" },
	{ 0 },
};

struct migrate_run {
	struct cli *cli;
	int applied;
	int newer;   /* newest schema version, if newer than this program; 0: none */
	char by[64]; /* program version that applied it */
};

static void put_migration_json(struct cli *cli, const struct pr_migration *migration,
			       int64_t applied_at_us, const char *applied_by)
{
	cli_begin_object(cli);
	cli_put_int_member(&cli->out, "version", migration->version);
	cli_put_member(&cli->out, "name", migration->name);
	cli_put_time_member(&cli->out, "applied_at", applied_at_us);
	cli_put_member(&cli->out, "applied_by", applied_by);
	cli_put_int_member(&cli->out, "compatible_with", migration->compatible_with);
	cli_end_object(cli);
}

static void print_applied(void *context, const struct pr_migration *migration,
			  int64_t applied_at_us, const char *applied_by)
{
	struct migrate_run *run = context;

	run->applied++;
	if (run->cli->global.json)
		put_migration_json(run->cli, migration, applied_at_us, applied_by);
	else
		pr_buf_printf(&run->cli->out, "applied %03d_%s\n", migration->version,
			      migration->name);
}

static void print_migration_status(void *context, const struct pr_migration *migration,
				   int64_t applied_at_us, const char *applied_by)
{
	struct migrate_run *run = context;
	char time[PR_RFC3339_SIZE];

	if (run->cli->global.json) {
		put_migration_json(run->cli, migration, applied_at_us, applied_by);
	} else if (applied_at_us == 0) {
		pr_buf_printf(&run->cli->out, "%03d_%s  missing\n", migration->version,
			      migration->name);
	} else {
		pr_rfc3339(applied_at_us, time);
		pr_buf_printf(&run->cli->out, "%03d_%s  applied %s by %s%s\n", migration->version,
			      migration->name, time, applied_by,
			      migration->sql ? "" : ", newer than this program");
	}
}

static void print_sql(void *context, const struct pr_migration *migration, int64_t applied_at_us,
		      const char *applied_by)
{
	struct migrate_run *run = context;
	struct cli *cli = run->cli;

	(void)applied_by;
	if (applied_at_us != 0)
		return;
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_int_member(&cli->out, "version", migration->version);
		cli_put_member(&cli->out, "name", migration->name);
		cli_put_member(&cli->out, "sql", migration->sql);
		cli_end_object(cli);
	} else {
		pr_buf_printf(&cli->out, "-- %03d_%s\n%s", migration->version, migration->name,
			      migration->sql);
	}
}

static void note_newer(void *context, const struct pr_migration *migration, int64_t applied_at_us,
		       const char *applied_by)
{
	struct migrate_run *run = context;

	(void)applied_at_us;
	if (migration->sql)
		return;
	run->newer = migration->version;
	snprintf(run->by, sizeof(run->by), "%s", applied_by);
}

/* A dry run on a missing database prints all migrations and creates nothing. */
static int open_read_only(struct cli *cli, bool dry_run, struct postroom_store **ret,
			  struct pr_err *err)
{
	struct pr_store_config config = { .url = cli->global.db,
					  .schema = cli->global.schema,
					  .busy_wait_ms = CLI_BUSY_WAIT_MS };
	int status = pr_store_open(&config, ret, err);

	if (dry_run && status == POSTROOM_UNAVAILABLE && err->native == ENOENT) {
		config.url = "sqlite::memory:";
		config.create = true;
		status = pr_store_open(&config, ret, err);
	}
	return status;
}

static int show_migrations(struct cli *cli, bool dry_run)
{
	struct migrate_run run = { .cli = cli };
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status = open_read_only(cli, dry_run, &store, &err);

	if (status >= 0)
		status = store->ops->migrations(store, dry_run ? print_sql : print_migration_status,
						&run, &err);
	if (status >= 0 && dry_run)
		status = store->ops->check_schema(store, PR_SCHEMA_COMPATIBLE, &err);
	pr_store_close(store);
	return status < 0 ? cli_store_fail(cli, &err) : CLI_DONE;
}

static int migrate_run(struct cli *cli, void *options)
{
	const struct migrate_options *given = options;
	const struct pr_store_config config = {
		.url = cli->global.db,
		.schema = cli->global.schema,
		.create = true,
		.busy_wait_ms = MIGRATE_BUSY_WAIT_MS,
	};
	struct migrate_run run = { .cli = cli };
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status;

	if (given->dry_run && given->status)
		return cli_usage(cli, "migrate: --dry-run and --status exclude each other");
	if (given->dry_run || given->status)
		return show_migrations(cli, given->dry_run);
	status = pr_store_open(&config, &store, &err);
	if (status >= 0)
		status = store->ops->migrate(store, print_applied, &run, &err);
	if (status >= 0 && run.applied == 0)
		status = store->ops->migrations(store, note_newer, &run, &err);
	pr_store_close(store);
	if (status < 0) {
		pr_buf_reset(&cli->out); /* rolled back together with the others */
		return cli_store_fail(cli, &err);
	}
	if (run.applied > 0 || cli->global.json)
		return CLI_DONE;
	if (run.newer)
		pr_buf_printf(
			&cli->out,
			"the schema is newer than this program: postroom %s has migrated it to "
			"version %d; postroom %s can use it, and nothing was changed\n",
			run.by, run.newer, postroom_version());
	else
		pr_buf_puts(&cli->out, "the tables are up to date\n");
	return CLI_DONE;
}

const struct cli_command cmd_migrate = {
	.name = "migrate",
	.synopsis = "[--dry-run | --status]",
	.summary = "Create or upgrade the tables",
	.about = "It is idempotent, and several migrations may run at the same time. With SQLite, "
		 "enqueue, relay, consume and inbox submit create the tables automatically. Use "
		 "migrate to create them before an application uses them, or to inspect the SQL."
		 "\n\nOlder "
		 "programs keep working after a migration unless it excludes them: --status --json "
		 "prints the oldest compatible schema version of each migration. A schema that is "
		 "newer than this program is not changed.",
	.examples = "postroom --db shop.db migrate\n"
		    "postroom --db shop.db migrate --dry-run\n"
		    "postroom --db shop.db migrate --status",
	.params = params,
	.options_size = sizeof(struct migrate_options),
	.run = migrate_run,
};
