/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by all commands of the program.
 *
 * A command is one file cmd_NAME.c, one const struct cli_command and one line
 * in postroom.c. Its options are a pr_param table into a struct of its own;
 * that table parses, checks and prints the help. A command writes results to
 * cli->out, which goes to stdout; errors and progress go to stderr.
 */
#ifndef PR_CLI_CLI_H
#define PR_CLI_CLI_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/members.h"
#include "base/param.h"
#include "config/yaml.h"
#include "store/store.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli;

struct cli_command {
	const char *name;
	const char *
		synopsis; /* the arguments after the name, one form per line; "" if there are none */
	const char *summary;  /* one line for `postroom --help` */
	const char *about;    /* for `postroom help NAME`; a blank line begins a paragraph */
	const char *examples; /* whole command lines, one per line */
	const struct pr_param *params; /* ends with name NULL; NULL: no options */
	size_t options_size;	       /* size of the struct that params fill */
	size_t min_args;
	size_t max_args; /* CLI_ANY_ARGS: no limit */
	bool configured; /* loads the whole configuration, not only the database */

	/* options contains the defaults and the given values; returns an enum cli_exit. */
	int (*run)(struct cli *cli, void *options);
};

#define CLI_ANY_ARGS ((size_t)-1)
#define CLI_OPTIONS_MAX 48

struct cli_globals {
	const char *db;
	const char *config;
	const char *schema;
	bool json;
	int64_t log_format; /* enum pr_log_format */
	int64_t log_level;  /* enum pr_log_level */
	bool help;
	bool version;
};

struct cli {
	struct cli_globals global;
	const struct cli_command *command;
	const char *const *args; /* arguments without the options and the name of the command */
	size_t arg_count;
	const char *given
		[CLI_OPTIONS_MAX]; /* which options the command line has, in the order of params */
	struct pr_arena memory;	   /* memory that lives as long as the program */
	struct pr_log log;	   /* stderr */
	struct pr_buf out;	   /* output for stdout, not yet written; see cli_flush() */
	bool out_failed;
	int out_errno; /* why */
	const char *
		out_context; /* effect that a broken stdout does not undo: "the message was written" */
	bool out_terminal; /* stdout is a terminal: print tables */
	bool out_colour;
	bool err_terminal; /* stderr is a terminal: show progress */
	bool err_colour;
	bool progress_shown; /* a progress bar is on the last line of the terminal */
};

extern const struct cli_command *const cli_commands[]; /* ends in NULL */
extern const struct pr_param cli_global_params[];      /* into struct cli_globals */

/* args.c: finds the command and parses all options. argv must outlive cli; the caller frees *ret_options. */
int cli_parse(struct cli *cli, int argc, char **argv, void **ret_options);
const struct cli_command *cli_find_command(const char *name);
int cli_unknown_command(struct cli *cli,
			const char *word); /* CLI_USAGE, suggests the nearest name */

/* help.c */
void cli_help_overview(struct cli *cli);
void cli_help_command(struct cli *cli, const struct cli_command *command);

/* version.c: one line, or one JSON object with build options and library versions. */
void cli_put_version(struct cli *cli);

/*
 * errors.c: one line `postroom: …` on stderr. The first two return CLI_FAILED
 * and CLI_USAGE, so that `return cli_fail(…)` reads well.
 */
int cli_fail(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reports a configuration that could not be loaded: one line per fault, or the text of err. */
int cli_config_fail(struct cli *cli, const struct pr_faults *faults, const struct pr_err *err);

/* out.c */

/* Writes cli->out to stdout. False if stdout is broken; main() reports that once, at the end. */
bool cli_flush(struct cli *cli);
/* The same, but only if the buffer is large enough; call it after each row. */
bool cli_flush_some(struct cli *cli);

/* Appends text with control characters escaped, so that no data can control the terminal. */
void cli_put_text(struct pr_buf *out, const char *text);
void cli_put_lines(struct pr_buf *out, const char *text, size_t len); /* keeps newlines and tabs */
void cli_put_count(struct pr_buf *out, int64_t number);		      /* 1,234,567 */
/* Appends to cli->out: "1,234 messages" on a terminal, "1234 messages" in a pipe, or "1 message". */
void cli_put_messages(struct cli *cli, int64_t number, const char *status);

/* input.c: reads NUL-terminated JSON text from standard input; too large if longer than max. */
int cli_read_stdin(struct cli *cli, const char *doing, const char *subject, size_t max,
		   struct pr_buf *out);

/* Members of a JSON object, with a comma if needed; NULL and time 0 become null. */
static inline void cli_put_member(struct pr_buf *out, const char *name, const char *text)
{
	pr_put_text(out, name, text);
}

static inline void cli_put_int_member(struct pr_buf *out, const char *name, int64_t value)
{
	pr_put_int(out, name, value);
}

static inline void cli_put_time_member(struct pr_buf *out, const char *name, int64_t time_us)
{
	pr_put_time(out, name, time_us);
}

static inline void cli_put_json_member(struct pr_buf *out, const char *name, const char *text,
				       size_t len)
{
	pr_put_json_text(out, name, text, len);
}

/* One object per line. */
void cli_begin_object(struct cli *cli);
bool cli_end_object(struct cli *cli); /* false if stdout is broken */

/* One line with a name and its value; no line for NULL and time 0. */
void cli_put_field(struct cli *cli, const char *name, const char *text);
void cli_put_time_field(struct cli *cli, const char *name, int64_t time_us);
void cli_put_number_field(struct cli *cli, const char *name, int64_t number);

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_CYAN };
/* Appends text in a color if stdout supports colors. */
void cli_put_coloured(struct cli *cli, enum cli_colour colour, const char *text, size_t len);
enum cli_colour cli_status_colour(const char *status);
size_t cli_columns(void); /* the terminal's width */

/*
 * db.c: opens the database that the user named. CLI_OPEN_CREATE creates the file
 * and the tables if needed; otherwise both must exist, in this version. Reports an
 * error and returns the exit status.
 */
enum cli_open { CLI_OPEN_EXISTING, CLI_OPEN_CREATE };
int cli_open_store(struct cli *cli, enum cli_open mode, struct postroom_store **ret);
/* Reports an error of a caller that opened the database itself. */
int cli_store_fail(struct cli *cli, const struct pr_err *err);
/* Reports that a row was not found, or why it could not be changed; doing is "" or "inbox show: ". */
int cli_row_fail(struct cli *cli, const char *doing, int status, struct postroom_store *store);
#define CLI_BUSY_WAIT_MS 5000

/* progress.c: a bar on stderr if that is a terminal; otherwise these functions do nothing. */
struct cli_progress {
	struct cli *cli;
	const char *label;
	int64_t total; /* 0: unknown */
	int64_t started_us;
	int64_t drawn_us;
};
void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label,
			int64_t total);
/* done of total; the bar displays count, which is often the same as done. Cheap. */
void cli_progress_show(struct cli_progress *progress, int64_t done, int64_t count);
void cli_progress_end(struct cli_progress *progress);

/*
 * Long work in steps of at most CLI_STEP rows, until a step finds fewer. Rows that begin to match
 * during the work are ignored, or it might never end: *older_than_ms of the filter grows with the
 * elapsed time.
 */
struct cli_steps {
	struct cli_progress progress;
	int64_t *older_than_ms;
	int64_t least_ms;
	int64_t total;	  /* rows changed by all steps */
	bool interrupted; /* by a signal, before the last step */
	struct sigaction before[2];
};
/* Small enough that a claim never waits long for the write lock (X2). */
#define CLI_STEP 500
void cli_steps_begin(struct cli_steps *steps, struct cli *cli, const char *label, int64_t expected,
		     int64_t *older_than_ms);
/*
 * Call it after each step; false: that was the last one. SIGINT and SIGTERM end the steps after the
 * current one, so that what was changed can be logged. A second signal ends the process.
 */
bool cli_steps_next(struct cli_steps *steps, int status, int64_t some);
/* The exit status after the last step, when its result was printed. */
int cli_steps_end(const struct cli_steps *steps, int status, const struct postroom_store *store);

/* Asks for confirmation on the terminal; any answer except yes means no. */
bool cli_confirm(const char *question);

/*
 * table.c: aligned columns with a header on a terminal, the last one cut to fit;
 * tabs and no header in a pipe. Cells are copied; NULL is an empty cell.
 */
#define CLI_TABLE_MAX 12
#define CLI_TABLE_ROWS 256
struct cli_table {
	struct cli *cli;
	const char *const *heads; /* ends in NULL */
	size_t columns;
	size_t width[CLI_TABLE_MAX];
	bool headed;
	bool right[CLI_TABLE_MAX]; /* numbers are aligned to the right */
	struct pr_buf text;
	struct cli_cell {
		size_t offset, len, width;
		enum cli_colour colour;
	} cells[CLI_TABLE_ROWS * CLI_TABLE_MAX];
	size_t count;
};
void cli_table_begin(struct cli_table *table, struct cli *cli, const char *const *heads);
void cli_table_cell(struct cli_table *table, enum cli_colour colour, const char *text);
/* Without fractions of a second on a terminal. */
void cli_table_time(struct cli_table *table, int64_t time_us);
void cli_table_int(struct cli_table *table, int64_t number);
/* Prints the remaining rows and frees the table; false if stdout is broken. */
bool cli_table_end(struct cli_table *table);

/* rows.c: a row of the outbox as one JSON object, every column a member. */
void cli_put_row(struct pr_buf *out, const postroom_row *row);
/* Only the members, so that the caller can append others. */
void cli_put_row_members(struct pr_buf *out, const postroom_row *row);
/* Attempts, lease and times of a row of either table: as JSON members, and as lines of text. */
void cli_put_progress_members(struct pr_buf *out, const postroom_row *row);
void cli_put_progress_fields(struct cli *cli, const postroom_row *row);
/* A duration without the needless precision; "-" if it is negative. */
const char *cli_format_age(int64_t age_us, char out[PR_DURATION_SIZE]);
/* The member of a body; NULL: there is none. */
void cli_put_body_member(struct pr_buf *out, const void *body, size_t len);

/* Maximum of --older-than: 100 years, like the retention of a relay. */
#define CLI_AGE_MAX_MS (36525LL * 86400000)

/* filter.c: selects messages for commands that process many of them. */
struct cli_filter {
	const char *ns;
	const char *topic;
	const char *tenant;
	const char *key;
	const char *error;
	const char *sink;
	const char *since;
	const char *until;
	char tenant_text[PR_UUID_SIZE];
};
/* clang-format off */
#define CLI_FILTER_PARAMS(owner, member)                                                    \
	{ .name = "topic", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.topic), \
	  .value = "PATTERN", .help = "only topics that match the pattern; * matches any characters" },      \
	{ .name = "namespace", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.ns), \
	  .value = "NAME", .help = "only this namespace" },                                  \
	{ .name = "tenant", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.tenant), \
	  .value = "UUID", .help = "only this tenant" },                                     \
	{ .name = "key", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.key),     \
	  .value = "KEY", .help = "only this key" },                                         \
	CLI_CAUSE_PARAMS(owner, member)
/* The filters that the outbox and the inbox share. */
#define CLI_CAUSE_PARAMS(owner, member)                                                      \
	{ .name = "error", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.error), \
	  .value = "TEXT", .help = "only rows whose last error contains this text, ignoring case" }, \
	{ .name = "sink", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.sink),   \
	  .value = "NAME", .help = "only rows whose last failed attempt was at this sink; \"<none>\" means that none is recorded" }, \
	{ .name = "since", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.since), \
	  .value = "WHEN", .help = "only rows created since then: 2h for two hours ago, or an RFC 3339 time" }, \
	{ .name = "until", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.until), \
	  .value = "WHEN", .help = "only rows created before then" }
/* clang-format on */
/* Checks the filter and fills the members of ret that it sets. */
int cli_filter_read(struct cli *cli, struct cli_filter *filter, postroom_filter *ret);
bool cli_filter_any(const struct cli_filter *filter);
/* Converts --tenant to lower case; CLI_USAGE if it is not a UUID. NULL is valid. */
int cli_read_tenant(struct cli *cli, const char *text, char out[PR_UUID_SIZE]);

/* operate.c: shared by the commands for the outbox and the inbox. */

/* Parses a duration before now or an RFC 3339 time. NULL leaves *ret_us unchanged. Else CLI_USAGE. */
int cli_read_when(struct cli *cli, const char *option, const char *text, int64_t *ret_us);
/* Prints how many rows match: {"matched"} with --json. */
int cli_print_matched(struct cli *cli, struct postroom_store *store, const postroom_filter *filter);
/* Prints dead rows grouped by cause, one line per cause. */
int cli_print_groups(struct cli *cli, struct postroom_store *store, const postroom_filter *filter,
		     int32_t limit);
/* Prints the failed attempts of a row, one per line, or as the member "attempts_log". */
int cli_put_attempts(struct cli *cli, struct postroom_store *store, const postroom_filter *filter);
/* Logs an operator action, with the user who runs the program. */
void cli_log_action(struct cli *cli, const char *action, const postroom_filter *filter,
		    int64_t count);
void cli_log_action_on(struct cli *cli, const char *action, const char *text, int64_t count);

extern const struct cli_command cmd_adopt;
extern const struct cli_command cmd_bench;
extern const struct cli_command cmd_checkpoint;
extern const struct cli_command cmd_completion;
extern const struct cli_command cmd_doctor;
extern const struct cli_command cmd_enqueue;
extern const struct cli_command cmd_consume;
extern const struct cli_command cmd_health;
extern const struct cli_command cmd_inbox;
extern const struct cli_command cmd_key;
extern const struct cli_command cmd_lease;
extern const struct cli_command cmd_list;
extern const struct cli_command cmd_migrate;
extern const struct cli_command cmd_purge;
extern const struct cli_command cmd_relay;
extern const struct cli_command cmd_retry;
extern const struct cli_command cmd_show;
extern const struct cli_command cmd_sinks;
extern const struct cli_command cmd_stats;
extern const struct cli_command cmd_step;
extern const struct cli_command cmd_top;

/*
 * The configuration, for its sinks and routes; free it with pr_config_free(). NULL if there is
 * none, or if it cannot be read completely: only the relay may have access to its secrets.
 */
struct pr_config;
struct pr_config *cli_load_routes(struct cli *cli);

#endif
