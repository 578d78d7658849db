/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command at work: started, fed, listened to, ended, reaped. The caller
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

/* The status of what could not be started, as shells say it. */
enum { PR_CHILD_NOT_EXECUTABLE = 126, PR_CHILD_NOT_FOUND = 127 };

/* What was kept of one of its outputs. */
struct pr_child_text {
	int fd; /* -1: at its end */
	char data[PR_CHILD_KEEP];
	size_t len;
	size_t dropped;
};

struct pr_child {
	pid_t pid; /* of its guard; see child.c */
	int pidfd;
	int in; /* -1: all is written, or nobody reads it */
	const char *input;
	size_t input_left;
	struct pr_child_text out; /* its beginning is kept */
	struct pr_child_text err; /* its end is kept */
	int64_t kill_us;	  /* when TERM gives way to KILL; 0: not asked to end */
	bool killed;

	/* Once pr_child_serve() has said true. */
	int status; /* exit status, or -1 */
	int signal; /* what it died of, or 0 */
};

/* POSTROOM_SINK if this system lacks what the rest relies on. */
int pr_child_check(struct pr_err *err);

/* input is borrowed until the child is gone. On failure there is no child. */
int pr_child_start(struct pr_child *child, const char *command, char *const *environment,
		   const void *input, size_t len, struct pr_err *err);

struct pr_program {
	const char *file;	/* a path, or sought in PATH */
	char *const *arguments; /* end in NULL, as the next do */
	char *const *environment;
};

/*
 * The same for any program, with standard streams that stay the caller's business: of
 * the child's descriptors only its end is watched and served.
 */
int pr_child_spawn(struct pr_child *child, const struct pr_program *program, const int streams[3],
		   struct pr_err *err);

void pr_child_watch(const struct pr_child *child, struct pollfd fds[PR_CHILD_FDS]);

/* Does what poll() found possible and what is due. True: reaped, all descriptors closed. */
bool pr_child_serve(struct pr_child *child, const struct pollfd fds[PR_CHILD_FDS], int64_t now_us);

/* Asks the whole group to end, and kills it after grace_ms. */
void pr_child_end(struct pr_child *child, int64_t now_us, int64_t grace_ms);

#endif
