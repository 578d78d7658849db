/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process: start, write its input, read its output, end, reap. The caller
 * owns the poll loop:
 *
 *	pr_child_start(&child, command, environment, input, len, err);
 *	do {
 *		pr_child_watch(&child, fds);
 *		poll(fds, PR_CHILD_FDS, …);
 *	} while (!pr_child_serve(&child, fds, now));
 *
 * It runs in a process group of its own, with the three standard descriptors
 * and no others, no signal blocked or ignored, and dies with the thread that
 * started it, together with all it has started. SIGPIPE must be ignored here: a
 * command need not read its input.
 */
#ifndef PR_SINK_CHILD_H
#define PR_SINK_CHILD_H

#include "base/err.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PR_CHILD_FDS 4
#define PR_CHILD_KEEP 4096

/* Exit status if the command could not be started, as in shells. */
enum { PR_CHILD_NOT_EXECUTABLE = 126, PR_CHILD_NOT_FOUND = 127 };

/* Status of pr_child_start() if the environment is too long: the message is the cause, not the
 * command. */
#define PR_CHILD_TOO_LONG 65

/* Stored part of an output. */
struct pr_child_text {
	int fd; /* -1: at end of file */
	char data[PR_CHILD_KEEP];
	size_t len;
	size_t dropped;
};

struct pr_child {
	pid_t pid; /* pid of its guard; see child.c */
	int pidfd;
	int in; /* -1: everything is written, or the command no longer reads */
	const char *input;
	size_t input_left;
	struct pr_child_text out; /* its beginning is stored */
	struct pr_child_text err; /* its end is stored */
	int64_t kill_us;	  /* when TERM gives way to KILL; 0: not asked to end */
	bool killed;

	/* Valid once pr_child_serve() has returned true. */
	int status; /* exit status, or -1 */
	int signal; /* the signal that ended it, or 0 */
};

/* Returns POSTROOM_SINK if the system lacks a required feature. */
int pr_child_check(struct pr_err *err);

/* input is borrowed until the child has ended. On failure there is no child. */
int pr_child_start(struct pr_child *child, const char *command, char *const *environment,
		   const void *input, size_t len, struct pr_err *err);

struct pr_program {
	const char *file;	/* a path, or a name to search in PATH */
	char *const *arguments; /* end in NULL, like the next */
	char *const *environment;
	int too_long; /* status if arguments and environment are too long; 0:
		       * PR_CHILD_NOT_EXECUTABLE */
};

/*
 * The same for any program whose standard streams the caller handles: only the end of the child is
 * watched and served.
 */
int pr_child_spawn(struct pr_child *child, const struct pr_program *program, const int streams[3],
		   struct pr_err *err);

void pr_child_watch(const struct pr_child *child, struct pollfd fds[PR_CHILD_FDS]);

/* Handles the results of poll() and passed deadlines. True: reaped, all descriptors closed. */
bool pr_child_serve(struct pr_child *child, const struct pollfd fds[PR_CHILD_FDS], int64_t now_us);

/* Asks the whole group to end, and kills it after grace_ms. */
void pr_child_end(struct pr_child *child, int64_t now_us, int64_t grace_ms);

#endif
