/* SPDX-License-Identifier: Apache-2.0 */
/*
 * us ── guard ── shell (or another program) ── its descendants
 *
 * The guard is a fork of ours that never executes another program. It ends the descendants of the
 * shell when we are killed: the kernel signals the death of a parent, but not of a grandparent.
 *
 * 1. After fork() only async-signal-safe calls: other threads may hold any lock.
 * 2. Signals are blocked across fork(), so that our handlers never run in the guard. It handles
 * them
 *    one by one: TERM is forwarded to the shell's group, USR1 (we request it, or we are dead) kills
 *    that group.
 * 3. The guard ends with the status of the shell. If the group was asked to end, it first waits for
 *    every descendant, so that each can clean up.
 * 4. Every guard that was started is reaped, and is signalled only before that.
 * 5. Descendants may outlive the shell and hold our pipes. Unless the group is being ended, nothing
 *    waits for them.
 */
#include "sink/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHELL "/bin/sh"

/* More than a pipe holds; a descendant that never stops writing must not keep us reading. */
#define READS_AT_ONCE 16
#define READ_SIZE ((size_t)16 * 1024)

enum { WATCH_IN, WATCH_OUT, WATCH_ERR, WATCH_EXIT };

/* By number: glibc has a function for it only since 2.36. */
static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static bool close_from(unsigned int first)
{
	return syscall(SYS_close_range, first, ~0U, 0) == 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int pr_child_check(struct pr_err *err)
{
	struct sigaction action;
	int fd = open_pidfd(getpid());

	if (fd < 0)
		return pr_err_errno(
			err, POSTROOM_SINK,
			"exec: this system has no pidfd_open; exec: needs Linux 5.9 or later");
	close(fd);
	/* No process has this id. */
	if (!close_from(~0U))
		return pr_err_errno(
			err, POSTROOM_SINK,
			"exec: this system has no close_range; exec: needs Linux 5.9 or later");
	sigaction(SIGCHLD, NULL, &action);
	if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT))
		return pr_err_set(err, POSTROOM_SINK,
				  "exec: SIGCHLD is ignored, so exit statuses would be lost; start "
				  "postroom with the default action");
	return POSTROOM_OK;
}

/* _exit() by number: ThreadSanitizer intercepts it, and expects the threads of the original in a
 * fork. */
__attribute__((noreturn)) static void leave(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

/* In the child: writes why the program could not be executed. */
__attribute__((noreturn)) static void refuse(const struct pr_program *program, const char *why,
					     int status)
{
	const char *const words[] = { program->file, " cannot be started", why, "\n" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		ssize_t written = write(STDERR_FILENO, words[i], strlen(words[i]));

		(void)written;
	}
	leave(status);
}

__attribute__((noreturn)) static void become(const struct pr_program *program)
{
	sigset_t none;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvpe(program->file, program->arguments, program->environment);
	if (errno == ENOENT)
		refuse(program, ": it was not found", PR_CHILD_NOT_FOUND);
	if (errno == EACCES)
		refuse(program, ": it may not be executed", PR_CHILD_NOT_EXECUTABLE);
	if (errno == E2BIG)
		refuse(program, ": command and environment are too long",
		       program->too_long ? program->too_long : PR_CHILD_NOT_EXECUTABLE);
	refuse(program, "", PR_CHILD_NOT_EXECUTABLE);
}

/* Ends with the same status as another process. */
__attribute__((noreturn)) static void end_like(int status)
{
	sigset_t all;

	if (WIFSIGNALED(status)) {
		prctl(PR_SET_DUMPABLE, 0); /* a core dump would be ours */
		signal(WTERMSIG(status), SIG_DFL);
		kill(getpid(), WTERMSIG(status));
		sigfillset(&all);
		sigdelset(&all, WTERMSIG(status));
		sigsuspend(&all);
	}
	leave(WEXITSTATUS(status));
}

/* True once the shell has ended and there is no descendant to wait for. */
static bool all_done(pid_t shell, bool *shell_done, int *shell_status, bool wait_for_all)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == shell) {
			*shell_done = true;
			*shell_status = status;
		}
	}
	return *shell_done && (pid < 0 || !wait_for_all);
}

__attribute__((noreturn)) static void watch_over(pid_t shell)
{
	bool shell_done = false, patient = false;
	int status = 0, number;
	sigset_t awaited;

	sigemptyset(&awaited);
	sigaddset(&awaited, SIGCHLD);
	sigaddset(&awaited, SIGTERM);
	sigaddset(&awaited, SIGUSR1);
	do {
		number = sigwaitinfo(&awaited, NULL);
		if (number == SIGTERM)
			patient = true;
		else if (number == SIGUSR1)
			patient = false;
		if (number == SIGTERM || number == SIGUSR1)
			kill(-shell, number == SIGTERM ? SIGTERM : SIGKILL);
	} while (!all_done(shell, &shell_done, &status, patient));
	end_like(status);
}

__attribute__((noreturn)) static void guard(const struct pr_program *program, const int streams[3],
					    pid_t parent)
{
	int above[3];
	pid_t shell;

	setpgid(0, 0); /* a signal to our whole group must not reach the guard */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	if (getppid() != parent)
		leave(PR_CHILD_NOT_EXECUTABLE); /* the parent ended before the line above */
	/* Our standard streams may have been closed, so the pipes may be 0 to 2. */
	for (int i = 0; i < 3; i++)
		above[i] = fcntl(streams[i], F_DUPFD, 3);
	/* Better no command than one with our descriptors. */
	for (int i = 0; i < 3; i++) {
		if (above[i] < 0 || dup2(above[i], i) < 0)
			leave(PR_CHILD_NOT_EXECUTABLE);
	}
	if (!close_from(3))
		refuse(program, ": without close_range it would inherit our files",
		       PR_CHILD_NOT_EXECUTABLE);
	shell = _Fork();
	if (shell == 0)
		become(program);
	if (shell < 0)
		refuse(program, ": cannot create another process", PR_CHILD_NOT_EXECUTABLE);
	setpgid(shell, shell); /* both processes do it, so that the group exists in either order */
	close_from(0);
	watch_over(shell);
}

/* Pipes for the three streams: ours are non-blocking. */
static bool make_pipes(int ours[3], int theirs[3])
{
	for (int i = 0; i < 3; i++) {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) < 0)
			return false;
		ours[i] = ends[i == STDIN_FILENO ? 1 : 0];
		theirs[i] = ends[i == STDIN_FILENO ? 0 : 1];
		if (fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0)
			return false;
	}
	return true;
}

static pid_t fork_child(const struct pr_program *program, const int streams[3])
{
	sigset_t all, before;
	pid_t parent = getpid(), pid;
	int code;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		guard(program, streams, parent);
	code = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = code;
	return pid;
}

/* The guard cannot be watched: it is treated as never started. */
static void kill_child(pid_t pid)
{
	int code = errno;

	kill(pid, SIGUSR1);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	errno = code;
}

static bool start_guard(struct pr_child *child, const struct pr_program *program,
			const int streams[3])
{
	child->pid = fork_child(program, streams);
	if (child->pid < 0)
		return false;
	child->pidfd = open_pidfd(child->pid);
	if (child->pidfd >= 0)
		return true;
	kill_child(child->pid);
	return false;
}

int pr_child_start(struct pr_child *child, const char *command, char *const *environment,
		   const void *input, size_t len, struct pr_err *err)
{
	const char *const arguments[] = { "sh", "-c", command, NULL };
	const struct pr_program shell = { SHELL, (char *const *)arguments, environment,
					  PR_CHILD_TOO_LONG };
	int ours[3] = { -1, -1, -1 }, theirs[3] = { -1, -1, -1 };
	bool good;

	*child = (struct pr_child){ .pidfd = -1, .input = input, .input_left = len, .status = -1 };
	good = make_pipes(ours, theirs) && start_guard(child, &shell, theirs);
	child->in = ours[0];
	child->out.fd = ours[1];
	child->err.fd = ours[2];
	if (!good) {
		pr_err_errno(err, POSTROOM_SINK, "exec: " SHELL " cannot be started");
		close_fd(&child->in);
		close_fd(&child->out.fd);
		close_fd(&child->err.fd);
	} else if (len == 0) {
		close_fd(&child->in);
	}
	for (int i = 0; i < 3; i++)
		close_fd(&theirs[i]);
	return good ? POSTROOM_OK : POSTROOM_SINK;
}

int pr_child_spawn(struct pr_child *child, const struct pr_program *program, const int streams[3],
		   struct pr_err *err)
{
	*child = (struct pr_child){
		.pidfd = -1, .in = -1, .out.fd = -1, .err.fd = -1, .status = -1
	};
	if (start_guard(child, program, streams))
		return POSTROOM_OK;
	return pr_err_errno(err, POSTROOM_SINK, "%s cannot be started", program->file);
}

void pr_child_watch(const struct pr_child *child, struct pollfd fds[PR_CHILD_FDS])
{
	fds[WATCH_IN] = (struct pollfd){ .fd = child->in, .events = POLLOUT };
	fds[WATCH_OUT] = (struct pollfd){ .fd = child->out.fd, .events = POLLIN };
	fds[WATCH_ERR] = (struct pollfd){ .fd = child->err.fd, .events = POLLIN };
	fds[WATCH_EXIT] = (struct pollfd){ .fd = child->pidfd, .events = POLLIN };
}

static void write_input(struct pr_child *child)
{
	while (child->input_left > 0) {
		ssize_t n = write(child->in, child->input, child->input_left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break; /* the command no longer reads its input, which is allowed */
		child->input += n;
		child->input_left -= (size_t)n;
	}
	close_fd(&child->in);
}

static void store_beginning(struct pr_child_text *text, const char *data, size_t len)
{
	size_t room = sizeof(text->data) - text->len;
	size_t kept = len < room ? len : room;

	memcpy(text->data + text->len, data, kept);
	text->len += kept;
	text->dropped += len - kept;
}

static void store_end(struct pr_child_text *text, const char *data, size_t len)
{
	size_t size = sizeof(text->data);
	size_t kept = len < size ? len : size;
	size_t stay = text->len < size - kept ? text->len : size - kept;

	memmove(text->data, text->data + text->len - stay, stay);
	memcpy(text->data + stay, data + len - kept, kept);
	text->dropped += text->len + len - stay - kept;
	text->len = stay + kept;
}

static void read_output(struct pr_child_text *text,
			void (*keep)(struct pr_child_text *, const char *, size_t))
{
	char data[READ_SIZE];

	for (int i = 0; i < READS_AT_ONCE && text->fd >= 0; i++) {
		ssize_t n = read(text->fd, data, sizeof(data));

		if (n > 0)
			keep(text, data, (size_t)n);
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			close_fd(&text->fd);
		else if (errno == EAGAIN)
			return;
	}
}

void pr_child_end(struct pr_child *child, int64_t now_us, int64_t grace_ms)
{
	if (child->killed)
		return;
	child->killed = grace_ms <= 0;
	child->kill_us = now_us + grace_ms * 1000;
	kill(child->pid, child->killed ? SIGUSR1 : SIGTERM);
}

static void reap(struct pr_child *child)
{
	int status = 0;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		child->signal = WTERMSIG(status);
	else
		child->status = WEXITSTATUS(status);
	read_output(&child->out, store_beginning);
	read_output(&child->err, store_end);
	close_fd(&child->in);
	close_fd(&child->out.fd);
	close_fd(&child->err.fd);
	close_fd(&child->pidfd);
}

bool pr_child_serve(struct pr_child *child, const struct pollfd fds[PR_CHILD_FDS], int64_t now_us)
{
	if (fds[WATCH_IN].revents)
		write_input(child);
	if (fds[WATCH_OUT].revents)
		read_output(&child->out, store_beginning);
	if (fds[WATCH_ERR].revents)
		read_output(&child->err, store_end);
	if (fds[WATCH_EXIT].revents) {
		reap(child);
		return true;
	}
	if (child->kill_us && now_us >= child->kill_us)
		pr_child_end(child, now_us, 0);
	return false;
}
