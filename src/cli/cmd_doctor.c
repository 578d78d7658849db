/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/admin.h"
#include "cli/cli.h"

#include "admin/settings.h"
#include "config/config.h"
#include "doctor/doctor.h"

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

struct report {
	struct cli *cli;
	const struct doctor_options *options;
	size_t counts[PR_LEVELS];
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
static void put_wrapped(struct cli *cli, size_t column, const char *text)
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
	put_wrapped(cli, strlen(INDENT), text);
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

static void put_json(struct cli *cli, const struct pr_finding *finding)
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

static void put_finding(void *context, const struct pr_finding *finding)
{
	struct report *report = context;
	struct cli *cli = report->cli;
	const char *level = pr_level_names[finding->level];

	report->counts[finding->level]++;
	if (cli->global.json) {
		put_json(cli, finding);
		return;
	}
	if (finding->level == PR_LEVEL_OK && !report->options->verbose)
		return;
	cli_put_coloured(cli, colour_of(finding->level), level, strlen(level));
	pr_buf_printf(&cli->out, "%.*s", (int)(strlen(INDENT) - strlen(level)), INDENT);
	pr_buf_reset(&report->title);
	pr_buf_printf(&report->title, "%s [%s]", finding->title, finding->check);
	put_wrapped(cli, strlen(INDENT), pr_buf_text(&report->title));
	if (is_known_reason(report, finding))
		return;
	put_paragraph(cli, finding->detail);
	put_paragraph(cli, finding->advice);
	put_command(cli, finding->command);
	cli_flush_some(cli);
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

/* Whether the file contains a secret in plain text instead of as ${NAME}. */
static bool has_secret(const struct pr_config_value *value, const char *text)
{
	for (; value; value = value->next) {
		if (value->text && value->shown && strcmp(value->text, value->shown) != 0 &&
		    strstr(text, value->text))
			return true;
	}
	return false;
}

static bool file_has_secrets(const struct pr_config *config)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	FILE *file = config->file ? fopen(config->file, "re") : NULL;
	char part[4096];
	bool found = false;
	size_t len;

	if (!file)
		return false;
	while ((len = fread(part, 1, sizeof(part), file)) > 0)
		pr_buf_append(&text, part, len);
	fclose(file);
	found = has_secret(config->database, pr_buf_text(&text)) ||
		has_secret(config->values, pr_buf_text(&text)) ||
		has_secret(config->section_values, pr_buf_text(&text));
	for (size_t i = 0; i < config->sink_count; i++)
		found = found || has_secret(config->sink_parts[i].values, pr_buf_text(&text));
	return found;
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

static int examine(struct cli *cli, const struct doctor_options *options,
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
	pr_doctor_run(config, put_finding, &report);
	put_summary(&report);
	pr_buf_release(&report.reason);
	pr_buf_release(&report.title);
	if (report.counts[PR_LEVEL_PROBLEM] > 0 || fixing.failed ||
	    (options->strict && report.counts[PR_LEVEL_WARNING] > 0))
		return CLI_FAILED;
	return CLI_DONE;
}

static bool is_public(const struct pr_admin_config *admin)
{
	struct pr_listen_address address;

	return pr_admin_is_wanted(admin) && pr_listen_parse(admin->listen, &address, NULL) >= 0 &&
	       !address.loopback;
}

/* doctor/ cannot include admin/, so it gets the parts that it judges. */
static void describe_admin(const struct pr_admin_config *admin, struct pr_doctor_admin *ret)
{
	*ret = (struct pr_doctor_admin){
		.listen = pr_admin_is_wanted(admin) ? admin->listen : NULL,
		.is_public = is_public(admin),
		.token = admin->token,
		.read_token = admin->read_token,
	};
}

static int run(struct cli *cli, void *given)
{
	const struct doctor_options *options = given;
	struct cli_loaded_relay loaded = { 0 };
	struct pr_doctor_admin admin = { 0 };
	struct pr_doctor_config config = { .relay = &loaded.relay,
					   .admin = &admin,
					   .file = cli->global.config,
					   .config_only = options->config_only,
					   .patience_ms = options->patience_ms };
	struct pr_faults faults = { 0 };
	struct pr_err err = { 0 };
	int status;

	if (options->fix && options->config_only)
		return cli_usage(cli, "doctor: --fix and --config-only exclude each other");
	if (cli_load_relay(cli, options->to, &loaded, &faults, &err) < 0) {
		config.relay = NULL;
		config.faults = faults.count > 0 ? pr_buf_text(&faults.text) : err.text;
	} else {
		config.file_has_secrets = file_has_secrets(loaded.loaded);
		describe_admin(&loaded.admin, &admin);
		if (faults.count > 0)
			config.faults = pr_buf_text(&faults.text);
	}
	status = examine(cli, options, &config);
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
		 "prints every check.",
	.examples = "postroom doctor\n"
		    "postroom -c /etc/postroom/postroom.yaml doctor --verbose\n"
		    "postroom -c postroom.yaml doctor --config-only\n"
		    "postroom -d postgres://app@db1/shop doctor --to redis://cache/orders --json",
	.params = params,
	.options_size = sizeof(struct doctor_options),
	.configured = true,
	.run = run,
};
