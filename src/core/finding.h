/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings of the doctor's checks. Stores, sinks and the doctor itself report
 * findings here, so that all of them look the same.
 *
 * A check begins, reports any number of findings, and ends. One that reports none is ok.
 * The texts of a finding are built piece by piece; it is passed on when the next one
 * begins or the check ends. Without memory, or past 64 KB, a text is cut short and a command is
 * left out, because a part of it may do harm; no finding is lost.
 */
#ifndef PR_CORE_FINDING_H
#define PR_CORE_FINDING_H

#include "base/buf.h"
#include "base/stop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pr_level {
	PR_LEVEL_OK,
	PR_LEVEL_NOTE,
	PR_LEVEL_WARNING,
	PR_LEVEL_PROBLEM,
	PR_LEVEL_SKIPPED, /* not checked: not the same as ok */
	PR_LEVELS
};

extern const char *const pr_level_names[]; /* "ok", "note", …; ends in NULL */

struct pr_finding {
	const char *check; /* "vacuum-horizon" */
	enum pr_level level;
	const char *title;   /* what was found */
	const char *detail;  /* evidence, and why it matters to a queue; NULL: none */
	const char *advice;  /* what to do, and who can do it */
	const char *command; /* SQL if it ends with a semicolon, otherwise for the shell */
};

/* The strings live as long as the call. */
typedef void (*pr_finding_fn)(void *context, const struct pr_finding *finding);

struct pr_checkup {
	pr_finding_fn fn;
	void *context;
	int64_t until_us; /* monotonic: checks that have not begun by then are skipped; 0: no
			   * limit */
	const struct pr_stop *stop; /* requested: all further checks are skipped; NULL: none */

	const char *check, *title; /* name of the running check; NULL: none */
	const char *subject;	   /* of the running check, such as a sink; NULL: none */
	enum pr_level level;	   /* severity of the finding that is being built */
	bool building, any;
	struct pr_buf texts[4]; /* title, detail, advice, command */
};

/* False: a stop was requested or the time limit has passed; the check was reported as skipped. */
bool pr_check_begin(struct pr_checkup *checkup, const char *check, const char *title);
void pr_check_end(struct pr_checkup *checkup);

/* Begins a finding; the functions below add to it. */
void pr_found(struct pr_checkup *checkup, enum pr_level level, const char *title, ...)
	__attribute__((format(printf, 3, 4)));
void pr_found_detail(struct pr_checkup *checkup, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void pr_found_advice(struct pr_checkup *checkup, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void pr_found_command(struct pr_checkup *checkup, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Adds a word to a command for the shell, quoted if necessary. Names of topics, streams, files
 * and roles come from others: a command that is copied must not run what is in them.
 */
void pr_found_command_word(struct pr_checkup *checkup, const char *word);

/* Reports that the running check cannot be done: why, and who can change that. */
void pr_found_skipped(struct pr_checkup *checkup, const char *why, const char *advice);

void pr_checkup_release(struct pr_checkup *checkup);

#endif
