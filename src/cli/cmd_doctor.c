/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/admin.h"
#include "cli/examine.h"

#include "base/stop.h"
#include "config/config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct doctor_options {
	const char *to;
	int64_t patience_ms;
	bool verbose;
	bool strict;
	bool fix;
	bool config_only;
};

#define OPTION(member) offsetof(struct doctor_options, member)

static const struct pr_param params[] = {
	{ .name = "verbose",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(verbose),
	  .help = "also list the checks that passed" },
	{ .name = "strict",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(strict),
	  .help = "also exit 1 if there are warnings" },
	{ .name = "fix",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(fix),
	  .help = "first repair objects of Postroom: invalid or missing indexes, missing table "
		  "settings, missing statistics" },
	{ .name = "config-only",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(config_only),
	  .help = "check only the configuration; do not connect to the database or to a sink" },
	{ .name = "to",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(to),
	  .value = "SINK-URL",
	  .help = "check this sink instead of the sinks of the configuration" },
	{ .name = "patience",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(patience_ms),
	  .value = "DUR",
	  .fallback = "5m",
	  .min = 1,
	  .max = 86400000,
	  .help = "maximum age of an open transaction, and maximum wait of a due message" },
	{ 0 },
};

static struct pr_stop stop;

/* Every wait ends at once, without the time to settle that a relay has. */
static void handle_stop(int number)
{
	(void)number;
	pr_stop_request(&stop, -PR_STOP_LAST_US / 1000);
}

/* A second signal ends the process. */
static int catch_doctor_signals(struct pr_err *err)
{
	struct sigaction action = { .sa_handler = handle_stop };

	action.sa_flags = (int)SA_RESETHAND;
	if (pr_stop_init(&stop, err) < 0)
		return err->status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return POSTROOM_OK;
}

static void release_signals(void)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	pr_stop_release(&stop);
}

struct report {
	struct cli *cli;
	const struct doctor_options *options;
	size_t counts[PR_LEVELS];
	struct pr_finding *findings; /* copies, in the order of the checks */
	size_t count, room;
	struct pr_buf reason; /* why the last check was skipped */
	struct pr_buf title;  /* of the finding that is being printed */
};

static enum cli_colour colour_of(enum pr_level level)
{
	static const enum cli_colour colours[] = {
		[PR_LEVEL_OK] = CLI_GREEN,	 [PR_LEVEL_NOTE] = CLI_CYAN,
		[PR_LEVEL_WARNING] = CLI_YELLOW, [PR_LEVEL_PROBLEM] = CLI_RED,
		[PR_LEVEL_SKIPPED] = CLI_DIM,
	};

	return colours[level];
}

#define INDENT "         "

#define WIDTH 79

/* Wraps words at the width of a terminal, below the level. Longer words stay whole. */
static void put_wrapped_finding(struct cli *cli, size_t column, const char *text)
{
	bool first = true;

	while (text && *text) {
		size_t len = strcspn(text, " \n");

		if (!first && column + 1 + len > WIDTH) {
			pr_buf_puts(&cli->out, "\n" INDENT);
			column = strlen(INDENT);
		} else if (!first) {
			pr_buf_putc(&cli->out, ' ');
			column++;
		}
		cli_put_lines(&cli->out, text, len);
		column += len;
		first = false;
		text += len + strspn(text + len, " \n");
	}
	pr_buf_putc(&cli->out, '\n');
}

static void put_paragraph(struct cli *cli, const char *text)
{
	if (!text || !*text)
		return;
	pr_buf_puts(&cli->out, INDENT);
	put_wrapped_finding(cli, strlen(INDENT), text);
}

/* Commands are not wrapped: people copy them. */
static void put_command(struct cli *cli, const char *text)
{
	while (text && *text) {
		size_t len = strcspn(text, "\n");

		pr_buf_puts(&cli->out, INDENT "    ");
		cli_put_lines(&cli->out, text, len);
		pr_buf_putc(&cli->out, '\n');
		text += len + (text[len] == '\n');
	}
}

static void put_findings_json(struct cli *cli, const struct pr_finding *finding)
{
	cli_begin_object(cli);
	cli_put_member(&cli->out, "check", finding->check);
	cli_put_member(&cli->out, "level", pr_level_names[finding->level]);
	cli_put_member(&cli->out, "title", finding->title);
	cli_put_member(&cli->out, "detail", finding->detail);
	cli_put_member(&cli->out, "advice", finding->advice);
	cli_put_member(&cli->out, "command", finding->command);
	cli_end_object(cli);
}

/* Many checks may be skipped for one reason, which is printed once. */
static bool is_known_reason(struct report *report, const struct pr_finding *finding)
{
	const char *reason = finding->detail ? finding->detail : "";

	if (finding->level != PR_LEVEL_SKIPPED || report->options->verbose)
		return false;
	if (strcmp(pr_buf_text(&report->reason), reason) == 0)
		return true;
	pr_buf_reset(&report->reason);
	pr_buf_puts(&report->reason, reason);
	return false;
}

static void put_text(struct report *report, const struct pr_finding *finding)
{
	struct cli *cli = report->cli;
	const char *level = pr_level_names[finding->level];

	cli_put_coloured(cli, colour_of(finding->level), level, strlen(level));
	pr_buf_printf(&cli->out, "%.*s", (int)(strlen(INDENT) - strlen(level)), INDENT);
	pr_buf_reset(&report->title);
	pr_buf_printf(&report->title, "%s [%s]", finding->title, finding->check);
	put_wrapped_finding(cli, strlen(INDENT), pr_buf_text(&report->title));
	if (is_known_reason(report, finding))
		return;
	put_paragraph(cli, finding->detail);
	put_paragraph(cli, finding->advice);
	put_command(cli, finding->command);
	cli_flush_some(cli);
}

static bool grow(struct report *report)
{
	size_t room = report->room ? 2 * report->room : 64;
	struct pr_finding *findings;

	if (report->count < report->room)
		return true;
	findings = realloc(report->findings, room * sizeof(*findings));
	if (!findings)
		return false;
	report->findings = findings;
	report->room = room;
	return true;
}

static void release_finding(struct pr_finding *finding)
{
	free((char *)finding->check);
	free((char *)finding->title);
	free((char *)finding->detail);
	free((char *)finding->advice);
	free((char *)finding->command);
}

/* False without memory. */
static bool keep_finding(struct report *report, const struct pr_finding *finding)
{
	const char *const from[] = { finding->check, finding->title, finding->detail,
				     finding->advice, finding->command };
	struct pr_finding copy = { .level = finding->level };
	const char **to[] = { &copy.check, &copy.title, &copy.detail, &copy.advice, &copy.command };
	bool whole = grow(report);

	for (size_t i = 0; whole && i < sizeof(to) / sizeof(to[0]); i++) {
		*to[i] = from[i] ? strdup(from[i]) : NULL;
		whole = !from[i] || *to[i];
	}
	if (whole)
		report->findings[report->count++] = copy;
	else
		release_finding(&copy);
	return whole;
}

/* JSON is printed at once; text is printed at the end, the worst first. */
static void take_finding(void *context, const struct pr_finding *finding)
{
	struct report *report = context;

	report->counts[finding->level]++;
	if (report->cli->global.json) {
		put_findings_json(report->cli, finding);
		return;
	}
	if (finding->level == PR_LEVEL_OK && !report->options->verbose)
		return;
	/* The summary counts the checks that an interrupt has left out. */
	if (finding->level == PR_LEVEL_SKIPPED && pr_stop_requested(&stop))
		return;
	if (!keep_finding(report, finding))
		put_text(report, finding);
}

static void put_all_findings(struct report *report)
{
	static const enum pr_level order[] = { PR_LEVEL_PROBLEM, PR_LEVEL_WARNING, PR_LEVEL_NOTE,
					       PR_LEVEL_SKIPPED, PR_LEVEL_OK };

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		for (size_t n = 0; n < report->count; n++) {
			if (report->findings[n].level == order[i])
				put_text(report, &report->findings[n]);
		}
	}
}

static void release_report(struct report *report)
{
	for (size_t i = 0; i < report->count; i++)
		release_finding(&report->findings[i]);
	free(report->findings);
	pr_buf_release(&report->reason);
	pr_buf_release(&report->title);
}

static void put_count(struct cli *cli, size_t count, const char *noun, bool *first)
{
	if (count == 0)
		return;
	pr_buf_printf(&cli->out, "%s%zu %s%s", *first ? "" : ", ", count, noun,
		      count == 1 ? "" : "s");
	*first = false;
}

static void put_summary(const struct report *report)
{
	struct cli *cli = report->cli;
	const size_t *counts = report->counts;
	bool first = true;

	if (cli->global.json)
		return;
	if (counts[PR_LEVEL_PROBLEM] + counts[PR_LEVEL_WARNING] + counts[PR_LEVEL_NOTE] +
		    counts[PR_LEVEL_SKIPPED] ==
	    0) {
		pr_buf_printf(&cli->out, "Everything is fine: %zu checks passed.\n",
			      counts[PR_LEVEL_OK]);
		return;
	}
	put_count(cli, counts[PR_LEVEL_PROBLEM], "problem", &first);
	put_count(cli, counts[PR_LEVEL_WARNING], "warning", &first);
	put_count(cli, counts[PR_LEVEL_NOTE], "note", &first);
	put_count(cli, counts[PR_LEVEL_SKIPPED], "skipped check", &first);
	pr_buf_printf(&cli->out, "; %zu checks passed.\n", counts[PR_LEVEL_OK]);
}

static void ignore_finding(void *context, const struct pr_finding *finding)
{
	(void)context, (void)finding;
}

struct fixing {
	struct cli *cli;
	bool failed;
};

/* Writes to stderr: stdout contains the findings after the repair. */
static void report_fix(void *context, const char *command, const struct pr_err *err)
{
	struct fixing *fixing = context;

	if (err) {
		fixing->failed = true;
		cli_fail(fixing->cli, "doctor: %s: %s", command, err->text);
	} else {
		fprintf(stderr, "fixed: %s\n", command);
	}
}

static int examine_doctor(struct cli *cli, const struct doctor_options *options,
			  struct pr_doctor_config *config)
{
	struct report report = { .cli = cli, .options = options };
	struct fixing fixing = { .cli = cli };

	if (options->fix && config->relay && !options->config_only) {
		config->fixed = report_fix;
		config->fixed_context = &fixing;
		pr_doctor_run(config, ignore_finding, NULL);
		config->fixed = NULL;
	}
	pr_doctor_run(config, take_finding, &report);
	put_all_findings(&report);
	put_summary(&report);
	release_report(&report);
	if (pr_stop_requested(&stop)) {
		cli_fail(cli,
			 "doctor: a signal ended it before all checks were made; run it again");
		return CLI_FAILED;
	}
	if (report.counts[PR_LEVEL_PROBLEM] > 0 || fixing.failed ||
	    (options->strict && report.counts[PR_LEVEL_WARNING] > 0))
		return CLI_FAILED;
	return CLI_DONE;
}

static int doctor_run(struct cli *cli, void *given)
{
	const struct doctor_options *options = given;
	struct cli_loaded_relay loaded = { 0 };
	struct pr_doctor_admin admin = { 0 };
	struct pr_doctor_config config = { .relay = &loaded.relay,
					   .admin = &admin,
					   .file = cli->global.config,
					   .config_only = options->config_only,
					   .stop = &stop,
					   .patience_ms = options->patience_ms };
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status;

	if (options->fix && options->config_only)
		return cli_usage(cli, "doctor: --fix and --config-only exclude each other");
	if (catch_doctor_signals(&err) < 0) {
		cli_fail(cli, "doctor: %s", err.text);
		return CLI_FAILED;
	}
	if (cli_load_relay(cli, options->to, &loaded, &faults, &err) < 0) {
		config.relay = NULL;
		config.faults = faults.count > 0 ? pr_buf_text(&faults.text) : err.text;
	} else {
		config.file_has_secrets = cli_file_has_secrets(loaded.loaded);
		cli_describe_admin(&loaded.admin, &admin);
		if (faults.count > 0)
			config.faults = pr_buf_text(&faults.text);
	}
	status = examine_doctor(cli, options, &config);
	release_signals();
	pr_config_free(loaded.loaded);
	pr_faults_release(&faults);
	return status;
}

const struct cli_command cmd_doctor = {
	.name = "doctor",
	.synopsis = "[OPTIONS]",
	.summary = "Find problems and print how to fix them",
	.about = "Checks the database, the sinks and the configuration. For each problem it prints "
		 "why it matters, what to do and who must do it. If there are no problems it "
		 "prints one line. A check that cannot run is reported as skipped, never as "
		 "passed.\n\nIt changes nothing, takes no blocking lock, publishes nothing, and "
		 "ends within seconds even for large tables. --fix first repairs the objects of "
		 "Postroom.\n\nLevels are ok, note, warning, problem and skipped. The exit status "
		 "is 1 if there is a problem; with --strict also if there is a warning. --json "
		 "prints every check.\n\nSIGINT and SIGTERM end it at once: it prints what it "
		 "found, skips the "
		 "other checks and exits with status 1.",
	.examples = "postroom doctor\n"
		    "postroom -c /etc/postroom/postroom.yaml doctor --verbose\n"
		    "postroom -c postroom.yaml doctor --config-only\n"
		    "postroom -d postgres://app@db1/shop doctor --to redis://cache/orders --json",
	.params = params,
	.options_size = sizeof(struct doctor_options),
	.configured = true,
	.run = doctor_run,
};
