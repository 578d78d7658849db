/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of the write-ahead log: how much of it waits for a checkpoint, and which process keeps
 * it from being written back.
 *
 * 1. The length of the file says little: after a burst it stays long, and is used again from its
 *    start. The check counts the frames that no checkpoint has written back. The index of the log
 *    (sqlite.org/walformat.html), which the connection has mapped, has both numbers.
 * 2. No file of the database is opened here: closing it would release all locks that this process
 *    holds on it, those of a relay included. Readers are found in /proc/locks.
 */
#include "store/sqlite/doctor.h"

#include "base/time.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAITING_WARNING_BYTES ((int64_t)64 * 1024 * 1024)
#define INDEX_SIZE 32768
#define FRAME_HEADER 24
#define READERS_MOST 5
#define SCAN_US ((int64_t)500 * 1000)
/* The bytes of the index that readers lock, and offsets in it. */
enum { FIRST_READ_LOCK = 123, LAST_READ_LOCK = 127 };
enum { AT_PAGE_SIZE = 14, AT_LAST_FRAME = 16, AT_BACKFILLED = 96 };

struct reader {
	long pid;
	char name[64];
};

static uint32_t read_number(const volatile char *index, size_t at)
{
	return *(const volatile uint32_t *)(const volatile void *)(index + at);
}

/* Bytes of the log that no checkpoint has written back; -1: the index cannot be read. */
static int64_t measure_waiting(sqlite3 *db)
{
	volatile void *index = NULL;
	sqlite3_file *file = NULL;
	uint32_t last, backfilled;
	uint16_t page;

	/* A read opens the log. */
	if (sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL) !=
		    SQLITE_OK ||
	    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
	    !file || !file->pMethods || file->pMethods->iVersion < 2 || !file->pMethods->xShmMap ||
	    file->pMethods->xShmMap(file, 0, INDEX_SIZE, 0, &index) != SQLITE_OK || !index)
		return -1;
	backfilled = read_number(index, AT_BACKFILLED);
	last = read_number(index, AT_LAST_FRAME);
	page = *(const volatile uint16_t *)((const volatile char *)index + AT_PAGE_SIZE);
	/* 1 stands for 65536. */
	return last <= backfilled
		       ? 0
		       : (int64_t)(last - backfilled) * ((page == 1 ? 65536 : page) + FRAME_HEADER);
}

/* Whether the process has the file open; true if that cannot be seen. */
static bool has_open(long pid, const struct stat *file, int64_t until_us)
{
	char path[600];
	struct dirent *entry;
	struct stat there;
	bool found = false;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%ld/fd", pid);
	directory = opendir(path);
	if (!directory)
		return true;
	while (!found && pr_mono_us() < until_us && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), "/proc/%ld/fd/%s", pid, entry->d_name);
		found = stat(path, &there) == 0 && there.st_ino == file->st_ino &&
			there.st_dev == file->st_dev;
	}
	closedir(directory);
	return found;
}

static void read_name(struct reader *reader)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/comm", reader->pid);
	file = fopen(path, "re");
	if (!file || !fgets(reader->name, sizeof(reader->name), file))
		snprintf(reader->name, sizeof(reader->name), "unknown");
	reader->name[strcspn(reader->name, "\n")] = '\0';
	if (file)
		fclose(file);
}

static bool is_listed(const struct reader *readers, size_t count, long pid)
{
	for (size_t i = 0; i < count; i++) {
		if (readers[i].pid == pid)
			return true;
	}
	return false;
}

/* The processes that have a read transaction open. */
static size_t find_readers(const char *index_path, struct reader readers[READERS_MOST])
{
	int64_t until_us = pr_mono_us() + SCAN_US;
	FILE *locks = fopen("/proc/locks", "re");
	struct stat file;
	char line[200];
	size_t count = 0;

	if (!locks || stat(index_path, &file) < 0) {
		if (locks)
			fclose(locks);
		return 0;
	}
	while (count < READERS_MOST && fgets(line, sizeof(line), locks)) {
		unsigned long long inode, first;
		long pid;

		/* "1: POSIX  ADVISORY  READ 4711 08:01:131 124 124" */
		if (sscanf(line, "%*d: POSIX ADVISORY READ %ld %*x:%*x:%llu %llu", &pid, &inode,
			   &first) != 3 ||
		    inode != (unsigned long long)file.st_ino || first < FIRST_READ_LOCK ||
		    first > LAST_READ_LOCK || pid <= 0 || is_listed(readers, count, pid) ||
		    !has_open(pid, &file, until_us))
			continue;
		readers[count].pid = pid;
		read_name(&readers[count++]);
	}
	fclose(locks);
	return count;
}

static void report_readers(struct pr_checkup *checkup, const struct reader *readers, size_t count)
{
	pr_found_detail(checkup,
			"Read transactions that are open keep the log from being written back: ");
	for (size_t i = 0; i < count; i++)
		pr_found_detail(checkup, "%s%s (process %ld)", i > 0 ? ", " : "", readers[i].name,
				readers[i].pid);
	pr_found_detail(checkup, ". Every claim searches the log, and the disk fills.");
	pr_found_advice(checkup,
			"Find out what the program does first. Its owner then ends its "
			"transaction, or the process by the command. The next commit empties "
			"the log.");
	pr_found_command(checkup, "kill");
	for (size_t i = 0; i < count; i++)
		pr_found_command(checkup, " %ld", readers[i].pid);
}

static void report(struct sqlite_inspection *in, int64_t waiting)
{
	PR_CLEANUP_BUF struct pr_buf path = { 0 };
	struct reader readers[READERS_MOST] = { { 0 } };
	size_t count;

	/* The name without links, beside which SQLite keeps its files. */
	pr_buf_printf(&path, "%s-shm", sqlite3_db_filename(in->store->db, "main"));
	count = find_readers(pr_buf_text(&path), readers);
	pr_found(in->checkup, PR_LEVEL_WARNING,
		 "%" PRId64 " MB of the write-ahead log were not written back",
		 waiting / 1024 / 1024);
	if (count > 0) {
		report_readers(in->checkup, readers, count);
		return;
	}
	pr_found_detail(in->checkup,
			"Every claim searches the log, and the disk fills. No program is "
			"reading at this moment.");
	pr_found_advice(
		in->checkup,
		"The owner of the file runs the command with sqlite3. If it fails or the log "
		"grows again, a program disables checkpoints (wal_autocheckpoint), or reads "
		"without a pause.");
	pr_found_command(in->checkup, "PRAGMA wal_checkpoint(TRUNCATE);");
}

void pr_sqlite_check_wal(struct sqlite_inspection *in)
{
	int64_t waiting;

	if (!in->wal ||
	    !pr_check_begin(in->checkup, "wal-size", "The write-ahead log is written back"))
		return;
	in->until_us = pr_mono_us() + SCAN_US;
	waiting = measure_waiting(in->store->db);
	if (waiting < 0)
		pr_found_skipped(in->checkup, "The index of the log cannot be read.", NULL);
	else if (waiting > WAITING_WARNING_BYTES)
		report(in, waiting);
	pr_check_end(in->checkup);
}
