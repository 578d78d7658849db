/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command of the program stands on.
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
#include "base/param.h"
#include "config/yaml.h"
#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli;

struct cli_command {
	const char *name;
	const char *synopsis; /* what follows the name, one way of use a line; "" if nothing does */
	const char *summary;  /* one line for `postroom --help` */
	const char *about;    /* for `postroom help NAME`; a blank line begins a paragraph */
	const char *examples; /* whole command lines, one a line */
	const struct pr_param *params; /* ends with name NULL; NULL: no options */
	size_t options_size;	       /* of the struct that params fill */
	size_t min_args;
	size_t max_args; /* CLI_ANY_ARGS: no limit */
	bool configured; /* loads the whole configuration; the others get the database alone */

	/* options is zeroed, has its defaults and what was given; returns an enum cli_exit. */
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
	const char *const *args; /* what is no option, the command's name left out */
	size_t arg_count;
	const char *given[CLI_OPTIONS_MAX]; /* the command's options as the line has them, as its params stand */
	struct pr_arena memory; /* for what lives as long as the program */
	struct pr_log log; /* stderr */
	struct pr_buf out; /* waits for stdout; see cli_flush() */
	bool out_failed;
	int out_errno;		 /* why */
	const char *out_context; /* what a broken stdout does not undo: "the message was written" */
	bool out_terminal;	 /* stdout is one: tables */
	bool out_colour;
	bool err_terminal; /* stderr is one: progress */
	bool err_colour;
	bool progress_shown; /* a bar stands on the terminal's last line */
};

extern const struct cli_command *const cli_commands[]; /* ends in NULL */
extern const struct pr_param cli_global_params[];      /* into struct cli_globals */

/* args.c: finds the command and parses all. argv must outlive cli; the caller frees *ret_options. */
int cli_parse(struct cli *cli, int argc, char **argv, void **ret_options);
const struct cli_command *cli_find_command(const char *name);
int cli_unknown_command(struct cli *cli, const char *word); /* CLI_USAGE, with the nearest one */

/* help.c */
void cli_help_overview(struct cli *cli);
void cli_help_command(struct cli *cli, const struct cli_command *command);

/*
 * errors.c: one line `postroom: …` on stderr. The first two return CLI_FAILED
 * and CLI_USAGE, so that `return cli_fail(…)` reads well.
 */
int cli_fail(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A configuration that could not be loaded: a line for each fault, or err's text if there are none. */
int cli_config_fail(struct cli *cli, const struct pr_faults *faults, const struct pr_err *err);

/* out.c */

/* Sends cli->out to stdout. False once stdout is broken; the one line about it comes at the end. */
bool cli_flush(struct cli *cli);
/* The same, but only once enough has gathered; call it after each row. */
bool cli_flush_some(struct cli *cli);

/* Appends text with control characters made visible, so that no data can play with the terminal. */
void cli_put_text(struct pr_buf *out, const char *text);
void cli_put_lines(struct pr_buf *out, const char *text, size_t len); /* newlines and tabs stay */
void cli_put_count(struct pr_buf *out, int64_t number);		      /* 1,234,567 */
/* To cli->out: "1,234 messages" on a terminal, "1234 messages" in a pipe, "1 message" alone. */
void cli_put_messages(struct cli *cli, int64_t number, const char *status);

/* input.c: JSON text from standard input, with a NUL behind it; more than max is told by its length. */
int cli_read_stdin(struct cli *cli, const char *doing, const char *what, size_t max,
		   struct pr_buf *out);

/* Members of a JSON object, with the comma where one is needed; NULL and time 0 are null. */
void cli_put_member(struct pr_buf *out, const char *name, const char *text);
void cli_put_int_member(struct pr_buf *out, const char *name, int64_t value);
void cli_put_time_member(struct pr_buf *out, const char *name, int64_t time_us);
/* Checked JSON, in one line: newlines between its tokens become blanks. */
void cli_put_json_member(struct pr_buf *out, const char *name, const char *text, size_t len);
/* One object a line. */
void cli_begin_object(struct cli *cli);
bool cli_end_object(struct cli *cli); /* false once stdout is broken */

/* A line of its own for a value under its name; nothing for NULL and time 0. */
void cli_put_field(struct cli *cli, const char *name, const char *text);
void cli_put_time_field(struct cli *cli, const char *name, int64_t time_us);
void cli_put_number_field(struct cli *cli, const char *name, int64_t number);

enum cli_colour { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_CYAN };
/* Appends text in a colour if stdout shows colours. */
void cli_put_coloured(struct cli *cli, enum cli_colour colour, const char *text, size_t len);
enum cli_colour cli_status_colour(const char *status);
size_t cli_columns(void); /* the terminal's width */

/*
 * db.c: opens the database the user named. CLI_OPEN_CREATE makes file and
 * tables if need be; otherwise both must be there, in this version. On failure
 * the error has been told and the exit status is returned.
 */
enum cli_open { CLI_OPEN_EXISTING, CLI_OPEN_CREATE };
int cli_open_store(struct cli *cli, enum cli_open mode, struct postroom_store **ret);
/* For those who open it by themselves: tells the error. */
int cli_store_fail(struct cli *cli, const struct pr_err *err);
#define CLI_BUSY_WAIT_MS 5000

/* progress.c: a bar on stderr, only when that is a terminal; otherwise all of it does nothing. */
struct cli_progress {
	struct cli *cli;
	const char *label;
	int64_t total; /* 0: not known */
	int64_t started_us;
	int64_t drawn_us;
};
void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label,
			int64_t total);
/* done of total; count is what the bar tells the user, often the same. Cheap. */
void cli_progress_show(struct cli_progress *progress, int64_t done, int64_t count);
void cli_progress_end(struct cli_progress *progress);

/*
 * Long work in steps of at most CLI_STEP, until one finds less. What comes to be meant meanwhile
 * is left alone, or it might never end: *older_than_ms, of the filter that a step goes by, grows
 * with the time that has passed.
 */
struct cli_steps {
	struct cli_progress progress;
	int64_t *older_than_ms;
	int64_t least_ms;
	int64_t total; /* what all steps together did */
};
/* Small enough that a claim never waits long for the write lock (X2). */
#define CLI_STEP 500
void cli_steps_begin(struct cli_steps *steps, struct cli *cli, const char *label, int64_t expected,
		     int64_t *older_than_ms);
/* Behind each step; false: that was the last. */
bool cli_steps_go_on(struct cli_steps *steps, int status, int64_t some);

/* Asks on the terminal; anything but a yes is a no. */
bool cli_confirm(const char *question);

/*
 * table.c: aligned columns with a head on a terminal, the last one cut to fit;
 * tabs and no head in a pipe. Cells are copied; NULL is an empty cell.
 */
#define CLI_TABLE_MAX 12
#define CLI_TABLE_ROWS 256
struct cli_table {
	struct cli *cli;
	const char *const *heads; /* ends in NULL */
	size_t columns;
	size_t width[CLI_TABLE_MAX];
	bool headed;
	bool right[CLI_TABLE_MAX]; /* numbers stand to the right */
	struct pr_buf text;
	struct cli_cell {
		size_t offset, len, width;
		enum cli_colour colour;
	} cells[CLI_TABLE_ROWS * CLI_TABLE_MAX];
	size_t count;
};
void cli_table_begin(struct cli_table *table, struct cli *cli, const char *const *heads);
void cli_table_cell(struct cli_table *table, enum cli_colour colour, const char *text);
/* Without its fraction on a terminal. */
void cli_table_time(struct cli_table *table, int64_t time_us);
void cli_table_int(struct cli_table *table, int64_t number);
/* Prints what is left and releases; false if stdout is broken. */
bool cli_table_end(struct cli_table *table);

/* rows.c: a row of the outbox as one JSON object, every column a member. */
void cli_put_row(struct pr_buf *out, const postroom_row *row);
/* The same of a body alone; NULL: there is none. */
void cli_put_body_member(struct pr_buf *out, const void *body, size_t len);

/* The most that --older-than takes: a hundred years, as the retention of a relay. */
#define CLI_AGE_MAX_MS (36525LL * 86400000)

/* filter.c: which messages, for the commands that work on many. */
struct cli_filter {
	const char *ns;
	const char *topic;
	const char *tenant;
	const char *key;
	char tenant_text[PR_UUID_SIZE];
};
/* clang-format off */
#define CLI_FILTER_PARAMS(owner, member)                                                    \
	{ .name = "topic", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.topic), \
	  .value = "PATTERN", .help = "only this topic; * stands for any characters" },      \
	{ .name = "namespace", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.ns), \
	  .value = "NAME", .help = "only this namespace" },                                  \
	{ .name = "tenant", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.tenant), \
	  .value = "UUID", .help = "only this tenant" },                                     \
	{ .name = "key", .type = PR_PARAM_STRING, .offset = offsetof(owner, member.key),     \
	  .value = "KEY", .help = "only this key" }
/* clang-format on */
/* Checks it and fills the members of ret that it speaks of. */
int cli_filter_read(struct cli *cli, struct cli_filter *filter, postroom_filter *ret);
bool cli_filter_any(const struct cli_filter *filter);
/* A tenant given on the command line, in lower case; CLI_USAGE if it is no UUID. NULL passes. */
int cli_read_tenant(struct cli *cli, const char *text, char out[PR_UUID_SIZE]);

extern const struct cli_command cmd_bench;
extern const struct cli_command cmd_checkpoint;
extern const struct cli_command cmd_enqueue;
extern const struct cli_command cmd_consume;
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

/*
 * The configuration, for its sinks and routes; pr_config_free() it. NULL if there is
 * none, or if not all of it can be had here: its secrets may be the relay's alone.
 */
struct pr_config;
struct pr_config *cli_load_routes(struct cli *cli);

#endif
