/* SPDX-License-Identifier: Apache-2.0 */
#include "base/url.h"
#include "cli/cli.h"

#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GLOBAL(field) offsetof(struct cli_globals, field)

const struct pr_param cli_global_params[] = {
	{ .name = "db",
	  .letter = 'd',
	  .type = PR_PARAM_STRING,
	  .offset = GLOBAL(db),
	  .value = "URL",
	  .help = "database: sqlite:PATH, a path, or postgres://… (default $POSTROOM_DB, "
		  "else database: in the configuration, else sqlite:postroom.db)" },
	{ .name = "config",
	  .letter = 'c',
	  .type = PR_PARAM_STRING,
	  .offset = GLOBAL(config),
	  .value = "FILE",
	  .help = "configuration file in YAML; environment variables and options override it "
		  "(default $POSTROOM_CONFIG, else none)" },
	{ .name = "schema",
	  .type = PR_PARAM_STRING,
	  .offset = GLOBAL(schema),
	  .value = "NAME",
	  .help = "PostgreSQL: schema of the tables (default: the first one of the search_path)" },
	{ .name = "json",
	  .type = PR_PARAM_FLAG,
	  .offset = GLOBAL(json),
	  .help = "print one JSON object per line" },
	{ .name = "log-format",
	  .type = PR_PARAM_CHOICE,
	  .offset = GLOBAL(log_format),
	  .value = "FORMAT",
	  .fallback = "text",
	  .choices = pr_log_formats,
	  .help = "format of the log on stderr" },
	{ .name = "log-level",
	  .type = PR_PARAM_CHOICE,
	  .offset = GLOBAL(log_level),
	  .value = "LEVEL",
	  .fallback = "info",
	  .choices = pr_log_levels,
	  .help = "minimum level of logged events" },
	{ .name = "help",
	  .letter = 'h',
	  .type = PR_PARAM_FLAG,
	  .offset = GLOBAL(help),
	  .help = "print this text" },
	{ .name = "version",
	  .type = PR_PARAM_FLAG,
	  .offset = GLOBAL(version),
	  .help = "print the version; with --json also the build options and the versions "
		  "of the loaded libraries" },
	{ 0 },
};

static int run_help(struct cli *cli, void *options);

static const struct cli_command cmd_help = {
	.name = "help",
	.synopsis = "[COMMAND]",
	.summary = "Explain a command, with examples",
	.about = "Without COMMAND, prints an overview.",
	.examples = "postroom help enqueue",
	.max_args = 1,
	.run = run_help,
};

const struct cli_command *const cli_commands[] = {
	&cmd_enqueue, &cmd_relay,  &cmd_list,	&cmd_show,    &cmd_retry,      &cmd_purge,
	&cmd_stats,   &cmd_top,	   &cmd_inbox,	&cmd_consume, &cmd_step,       &cmd_checkpoint,
	&cmd_lease,   &cmd_health, &cmd_doctor, &cmd_adopt,   &cmd_migrate,    &cmd_key,
	&cmd_sinks,   &cmd_bench,  &cmd_completion, &cmd_help, NULL,
};

static int run_help(struct cli *cli, void *options)
{
	(void)options;
	if (cli->arg_count == 0) {
		cli_help_overview(cli);
		return CLI_DONE;
	}
	const struct cli_command *command = cli_find_command(cli->args[0]);
	if (!command)
		return cli_unknown_command(cli, cli->args[0]);
	cli_help_command(cli, command);
	return CLI_DONE;
}

/*
 * The next opened file, perhaps the database, would get the number of a closed
 * standard descriptor. So a closed descriptor is replaced by one on which reads
 * (or writes) fail in the same way.
 */
static void fill_standard_descriptors(void)
{
	static const int modes[] = { O_WRONLY, O_RDONLY, O_WRONLY };

	for (int fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd)
			_exit(CLI_FAILED);
	}
}

static void check_terminals(struct cli *cli)
{
	const char *no_colour = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	bool dumb = !term || strcmp(term, "dumb") == 0;
	bool colours = !dumb && !(no_colour && *no_colour);

	cli->out_terminal = isatty(STDOUT_FILENO);
	cli->err_terminal = isatty(STDERR_FILENO) && !dumb;
	cli->out_colour = cli->out_terminal && colours;
	cli->err_colour = cli->err_terminal && colours;
}

/*
 * Copies the arguments into one block, and overwrites secrets in the originals,
 * which all users of the machine can read.
 */
static char **take_arguments(int argc, char **argv)
{
	size_t size = ((size_t)argc + 1) * sizeof(char *);
	char **copies;
	char *at;

	for (int i = 0; i < argc; i++)
		size += strlen(argv[i]) + 1;
	copies = calloc(1, size);
	if (!copies)
		return NULL;
	at = (char *)(copies + argc + 1);
	for (int i = 0; i < argc; i++) {
		size_t len = strlen(argv[i]) + 1;

		copies[i] = memcpy(at, argv[i], len);
		at += len;
		pr_url_hide(argv[i]);
	}
	return copies;
}

static int choose_database(struct cli *cli)
{
	const char *db = getenv("POSTROOM_DB");
	const char *config = getenv("POSTROOM_CONFIG");
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status = CLI_DONE;

	if (!cli->global.config && config && *config)
		cli->global.config = config;
	if (cli->global.db || cli->command->configured)
		return CLI_DONE;
	cli->global.db = db && *db ? db : "sqlite:postroom.db";
	if (cli->global.config && pr_config_database(cli->global.config, &cli->memory, &faults,
						     &cli->global.db, &err) < 0)
		status = cli_config_fail(cli, &faults, &err);
	pr_faults_release(&faults);
	return status;
}

static int run(struct cli *cli, void *options)
{
	int status;

	if (cli->global.version) {
		cli_put_version(cli);
		return CLI_DONE;
	}
	if (cli->global.help) {
		if (cli->command)
			cli_help_command(cli, cli->command);
		else
			cli_help_overview(cli);
		return CLI_DONE;
	}
	if (!cli->command)
		return cli_usage(cli, "no command given; postroom --help lists all commands");
	status = choose_database(cli);
	return status == CLI_DONE ? cli->command->run(cli, options) : status;
}

#define LARGE_ALLOCATION (128 * 1024)

int main(int argc, char **argv)
{
	struct cli cli = { 0 };
	void *options = NULL;

	argv = take_arguments(argc, argv);
	if (!argv)
		return CLI_FAILED;
	fill_standard_descriptors();
	/* Broken pipes and file size limits become errors, not signals; exec: needs the exit status of children. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	/* Return the memory of large messages to the system. By default malloc keeps it. */
	mallopt(M_MMAP_THRESHOLD, LARGE_ALLOCATION);
	mallopt(M_TRIM_THRESHOLD, LARGE_ALLOCATION);
	check_terminals(&cli);
	pr_log_init(&cli.log, STDERR_FILENO, PR_LOG_INFO, PR_LOG_TEXT);

	int status = cli_parse(&cli, argc, argv, &options);
	if (status == CLI_DONE) {
		cli.log.level = (enum pr_log_level)cli.global.log_level;
		cli.log.format = (enum pr_log_format)cli.global.log_format;
		status = run(&cli, options);
	}
	if (!cli_flush(&cli) && status == CLI_DONE)
		status = cli_fail(&cli, "%s%scannot write to standard output: %s",
				  cli.out_context ? cli.out_context : "",
				  cli.out_context ? ", but " : "", strerror(cli.out_errno));
	pr_log_release(&cli.log);
	pr_buf_release(&cli.out);
	pr_arena_release(&cli.memory);
	free(options);
	free(argv);
	return status;
}
