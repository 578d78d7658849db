/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file: appends one JSON object per line.
 *
 * 1. A batch is written under the file's lock, so that any number of workers and relays may append
 *    to one file.
 * 2. A writer begins at the start of a line: if a killed relay left a torn last line, it is ended
 *    first.
 * 3. A batch is completely in the file, and on the disk unless sync=no, before any of it is
 *    DELIVERED. A partial write is truncated.
 * 4. Nothing is written to a file that no longer has this name: it would be lost with it.
 * 5. A lock that others hold one after the other is not an outage: messages that missed it are untried. A lock
 *    under which nothing is written is an outage.
 *
 * Past a limit on file sizes a write raises SIGXFSZ: the program must ignore it.
 */
#include "base/time.h"
#include "sink/lines.h"
#include "sink/target.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_PAUSE_MS 2

struct file_sink {
	struct pr_sink sink;
	bool sync;
	const char *path;
	int fd; /* -1: to be reopened */
	struct pr_buf lines;
};

static void close_descriptor(struct file_sink *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

/* A new file is durable only when its directory entry is on the disk too. */
static void sync_directory(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	free(copy);
	if (fd >= 0) {
		fsync(fd); /* some file systems do not support it, and do not need it */
		close(fd);
	}
}

static int open_fd(struct file_sink *file, struct pr_err *err)
{
	struct stat st;

	/* O_NONBLOCK: opening a FIFO or a device must not block. */
	file->fd = open(file->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
	if (file->fd < 0)
		return pr_err_errno(err, POSTROOM_SINK, "file: \"%s\" cannot be opened%s",
				    file->path,
				    errno == ENOENT ? " (does its directory exist?)" : "");
	if (fstat(file->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close_descriptor(file);
		return pr_err_set(err, POSTROOM_SINK,
				  "file: \"%s\" is not a regular file; use stdout: or exec: for "
				  "pipes and devices",
				  file->path);
	}
	if (file->sync && st.st_size == 0)
		sync_directory(file->path);
	return POSTROOM_OK;
}

static int open_file(struct pr_sink *sink, struct pr_err *err)
{
	struct file_sink *file = (struct file_sink *)sink;

	file->path = sink->url.path;
	if (sink->url.host[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "file: takes no host; write file:PATH or file:///PATH");
	if (!file->path[0])
		return pr_err_set(err, POSTROOM_SINK, "file: needs a path, as in %s",
				  pr_sink_file.example);
	if (pr_target_is_template(file->path))
		return pr_err_set(
			err, POSTROOM_SINK,
			"file: all messages go to one file: its path cannot contain {topic} "
			"and the like");
	return open_fd(file, err);
}

static void close_file(struct pr_sink *sink)
{
	struct file_sink *file = (struct file_sink *)sink;

	close_descriptor(file);
	pr_buf_release(&file->lines);
}

/* The next batch reopens the path. */
static void reopen(struct pr_sink *sink)
{
	close_descriptor((struct file_sink *)sink);
}

static bool still_named(const struct file_sink *file)
{
	struct stat open_st, path_st;

	return fstat(file->fd, &open_st) == 0 && stat(file->path, &path_st) == 0 &&
	       open_st.st_dev == path_st.st_dev && open_st.st_ino == path_st.st_ino;
}

static off_t size_of(const struct file_sink *file)
{
	struct stat st;

	return fstat(file->fd, &st) == 0 ? st.st_size : 0;
}

/* Locks the file that has the path now. POSTROOM_STOPPED: no attempt was made. */
static int take_lock(struct file_sink *file, const struct pr_flight *flight, struct pr_err *err)
{
	int status = pr_err_set(err, POSTROOM_STOPPED, "no time left to begin");
	off_t size = -1; /* when the lock was first found taken */
	struct pollfd none[1];

	while (pr_flight_may_begin(flight)) {
		if (file->fd < 0 && open_fd(file, err) < 0)
			return err->status;
		if (flock(file->fd, LOCK_EX | LOCK_NB) == 0) {
			if (still_named(file))
				return POSTROOM_OK;
			close_descriptor(
				file); /* renamed or deleted; closing it releases the lock */
		} else if (errno == EWOULDBLOCK) {
			status = pr_err_set(err, POSTROOM_BUSY,
					    "file: \"%s\" is locked by another process, which "
					    "writes nothing; lslocks shows which",
					    file->path);
			size = size < 0 ? size_of(file) : size;
			pr_flight_poll(flight, none, 1, pr_mono_us() + LOCK_PAUSE_MS * 1000);
		} else {
			return pr_err_errno(err, POSTROOM_SINK, "file: \"%s\" cannot be locked",
					    file->path);
		}
	}
	if (pr_stop_requested(flight->stop) || (size >= 0 && size_of(file) > size))
		return POSTROOM_STOPPED;
	return status;
}

/* True unless the file ends in the middle of a line. */
static bool ends_well(int fd, off_t size)
{
	char last;

	return size == 0 || (pread(fd, &last, 1, size - 1) == 1 && last == '\n');
}

static bool write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return true;
}

/* Requires the lock. lines begins with a line break that ends a torn line. */
static int append(struct file_sink *file, struct pr_err *err)
{
	struct stat st;
	size_t skip;

	if (fstat(file->fd, &st) < 0)
		return pr_err_errno(err, POSTROOM_SINK, "file: \"%s\" cannot be read", file->path);
	skip = ends_well(file->fd, st.st_size) ? 1 : 0;
	if (!write_all(file->fd, file->lines.data + skip, file->lines.len - skip) ||
	    (file->sync && fdatasync(file->fd) < 0)) {
		pr_err_errno(err, POSTROOM_SINK, "file: \"%s\" cannot be written", file->path);
		/* If this fails too, the next batch ends the torn line. */
		if (ftruncate(file->fd, st.st_size) < 0)
			pr_err_prefix(err, "a partial line remains");
		return err->status;
	}
	return POSTROOM_OK;
}

static int publish_lines(struct file_sink *file, const struct pr_flight *flight, struct pr_err *err)
{
	int status = take_lock(file, flight, err);

	if (status < 0)
		return status;
	status = append(file, err);
	if (status < 0)
		close_descriptor(
			file); /* a descriptor whose fsync has failed must not be used again */
	else
		flock(file->fd, LOCK_UN);
	return status;
}

static int file_publish(struct pr_sink *sink, postroom_delivery *items, size_t count,
			const struct pr_flight *flight, struct pr_err *err)
{
	struct file_sink *file = (struct file_sink *)sink;
	struct pr_err failure = { 0 };
	struct pr_lines lines;
	int status;

	(void)err;
	pr_buf_putc(&file->lines, '\n');
	if (!pr_lines_put(&file->lines, items, count, flight, &lines))
		status = pr_err_nomem(&failure);
	else
		status = publish_lines(file, flight, &failure);
	if (status == POSTROOM_OK)
		pr_lines_judge(&lines, lines.count, items, count, flight);
	else if (status == POSTROOM_STOPPED)
		pr_sink_judge(items, count, POSTROOM_UNTRIED, flight, NULL);
	else
		pr_sink_judge(items, count, POSTROOM_UNREACHABLE, flight, failure.text);
	pr_buf_trim(&file->lines);
	return POSTROOM_OK;
}

/* Opening would create the file, so only its permissions are checked. */
static void file_probe(struct pr_sink *sink, const struct pr_flight *flight,
		       struct pr_checkup *checkup)
{
	const char *path = sink->url.path;
	char *copy = strdup(path);
	const char *parent = copy ? dirname(copy) : ".";
	struct stat st;
	bool there = stat(path, &st) == 0;

	(void)flight;
	if (there ? access(path, R_OK | W_OK) < 0 : access(parent, W_OK | X_OK) < 0) {
		pr_found(checkup, PR_LEVEL_PROBLEM, "\"%s\" cannot be written", path);
		pr_found_detail(checkup, "%s. Messages wait in the outbox.", strerror(errno));
		pr_found_advice(checkup,
				"The owner of the directory, or root, creates it or changes its "
				"permissions for the user of the relay.");
		pr_found_command(checkup, there ? "chown %d " : "install -d -o %d ",
				 (int)geteuid());
		pr_found_command_word(checkup, there ? path : parent);
	}
	free(copy);
}

static const char *const schemes[] = { "file", NULL };

static const struct pr_param params[] = {
	{ .name = "sync",
	  .type = PR_PARAM_FLAG,
	  .offset = offsetof(struct file_sink, sync),
	  .value = "yes|no",
	  .fallback = "yes",
	  .help = "wait until a batch is on the disk before it counts as delivered" },
	{ .name = NULL },
};

const struct pr_sink_ops pr_sink_file = {
	.schemes = schemes,
	.summary = "one JSON object per line, appended to a file; reopened on SIGHUP",
	.example = "file:out.ndjson",
	.size = sizeof(struct file_sink),
	.params = params,
	.acts = true,
	.open = open_file,
	.publish = file_publish,
	.probe = file_probe,
	.probes_closed = true,
	.reopen = reopen,
	.close = close_file,
};
