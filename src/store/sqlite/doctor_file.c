/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a SQLite file that need no connection: where it is, and who may write it. */
#include "store/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FREE_LEAST_BYTES ((int64_t)16 * 1024 * 1024)
#define PATH_SIZE 4200

/* Types of statfs(2) that <linux/magic.h> lacks in part. */
static const struct {
	unsigned long type;
	const char *name;
	enum pr_level level;
} network_types[] = {
	{ 0x6969, "NFS", PR_LEVEL_PROBLEM },
	{ 0xFF534D42, "CIFS", PR_LEVEL_PROBLEM },
	{ 0xFE534D42, "SMB2", PR_LEVEL_PROBLEM },
	{ 0x517B, "SMB", PR_LEVEL_PROBLEM },
	{ 0x5346414F, "AFS", PR_LEVEL_PROBLEM },
	{ 0x00C36400, "Ceph", PR_LEVEL_PROBLEM },
	{ 0x0BD00BD0, "Lustre", PR_LEVEL_PROBLEM },
	{ 0x01161970, "GFS2", PR_LEVEL_PROBLEM },
	{ 0x7461636F, "OCFS2", PR_LEVEL_PROBLEM },
	{ 0x47504653, "GPFS", PR_LEVEL_PROBLEM },
	{ 0x19830326, "BeeGFS", PR_LEVEL_PROBLEM },
	{ 0x786F4256, "a shared folder of VirtualBox", PR_LEVEL_PROBLEM },
	{ 0xBACBACBC, "a shared folder of VMware", PR_LEVEL_PROBLEM },
	{ 0x01021997, "9P", PR_LEVEL_WARNING },
	{ 0x65735546, "FUSE or VirtioFS", PR_LEVEL_WARNING },
	{ 0x6a656a63, "FUSE or VirtioFS", PR_LEVEL_WARNING },
};

static void directory_of(const char *path, char out[PATH_SIZE])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(out, PATH_SIZE, ".");
	else
		snprintf(out, PATH_SIZE, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static void check_file_system(const char *directory, struct pr_checkup *checkup)
{
	struct statfs where;

	if (!pr_check_begin(checkup, "file-system", "The file is on a local file system"))
		return;
	if (statfs(directory, &where) < 0) {
		pr_found_skipped(checkup, strerror(errno), NULL);
		pr_check_end(checkup);
		return;
	}
	for (size_t i = 0; i < sizeof(network_types) / sizeof(network_types[0]); i++) {
		if (((unsigned long)where.f_type & 0xffffffff) != network_types[i].type)
			continue;
		pr_found(checkup, network_types[i].level, "The file is on %s",
			 network_types[i].name);
		pr_found_detail(checkup,
				"WAL mode needs memory that all programs share, and locks that "
				"work. Both hold within one host only: two hosts, or a host and a "
				"virtual machine, would corrupt the database.");
		pr_found_advice(checkup,
				"The operator moves the database to a local disk, or makes sure "
				"that only programs of one host use it.");
	}
	pr_check_end(checkup);
}

/*
 * SQLite finds the write-ahead log by the name of the file. Programs that use the same file
 * under two names have two logs, and corrupt it. A container that mounts only the file is the
 * usual case.
 */
static void check_names(const char *path, struct pr_checkup *checkup)
{
	struct statx there;

	if (!pr_check_begin(checkup, "file-names", "All programs use the file by one name"))
		return;
	if (statx(AT_FDCWD, path, 0, STATX_NLINK, &there) < 0) {
		pr_found_skipped(checkup, strerror(errno), "See the check \"database\".");
		pr_check_end(checkup);
		return;
	}
	if (there.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
		pr_found(checkup, PR_LEVEL_PROBLEM, "%s is mounted alone, without its directory",
			 path);
		pr_found_detail(
			checkup,
			"The files -wal and -shm beside it are not shared. Programs inside and "
			"outside of the container corrupt the database.");
		pr_found_advice(checkup,
				"The operator stops all programs that use the file, and mounts "
				"its directory instead.");
	}
	if (there.stx_nlink > 1) {
		pr_found(checkup, PR_LEVEL_PROBLEM, "%s has %u names", path, there.stx_nlink);
		pr_found_detail(checkup,
				"Each name has a write-ahead log of its own. Programs that use "
				"different names corrupt the database.");
		pr_found_advice(checkup,
				"The command lists the names. The owner of the file stops all "
				"programs that use it, and removes the other names.");
		pr_found_command(checkup, "find / -xdev -samefile ");
		pr_found_command_word(checkup, path);
	}
	pr_check_end(checkup);
}

/* Names a file that this user cannot use. A missing file is the concern of the check "database". */
static void check_access(const char *path, int mode, struct pr_checkup *checkup)
{
	struct stat there;
	int error;

	if (access(path, mode) == 0 || errno == ENOENT)
		return;
	error = errno;
	pr_found(checkup, PR_LEVEL_PROBLEM, "%s cannot be written", path);
	pr_found_detail(checkup,
			"%s, for user %d. A relay writes leases and results, so it can deliver "
			"nothing.",
			strerror(error), (int)geteuid());
	if (error == EROFS) {
		pr_found_advice(checkup, "The administrator mounts the file system for writing, or "
					 "the operator moves the database.");
		return;
	}
	pr_found_advice(checkup,
			"The owner of the file, or root, runs the command; or the operator "
			"runs the relay as the user of the application.");
	if (stat(path, &there) == 0 && there.st_uid == geteuid())
		pr_found_command(checkup, "chmod u+rwX ");
	else
		pr_found_command(checkup, "chown %d:%d ", (int)geteuid(), (int)getegid());
	pr_found_command_word(checkup, path);
}

static void check_writable(const char *path, const char *directory, struct pr_checkup *checkup)
{
	static const char *const endings[] = { "-wal", "-shm" };
	char beside[PATH_SIZE];

	if (!pr_check_begin(checkup, "writable", "The file and its directory are writable"))
		return;
	check_access(path, R_OK | W_OK, checkup);
	check_access(directory, R_OK | W_OK | X_OK, checkup);
	for (size_t i = 0; i < 2; i++) {
		snprintf(beside, sizeof(beside), "%.4100s%s", path, endings[i]);
		check_access(beside, R_OK | W_OK, checkup);
	}
	pr_check_end(checkup);
}

static int64_t size_of(const char *path)
{
	struct stat there;

	return stat(path, &there) == 0 ? (int64_t)there.st_size : 0;
}

static void check_space(const char *path, const char *directory, struct pr_checkup *checkup)
{
	struct statvfs where;
	char wal[PATH_SIZE];
	int64_t used, wanted, left;

	if (!pr_check_begin(checkup, "free-space", "The disk has room"))
		return;
	if (statvfs(directory, &where) < 0) {
		pr_found_skipped(checkup, strerror(errno), NULL);
		pr_check_end(checkup);
		return;
	}
	snprintf(wal, sizeof(wal), "%.4100s-wal", path);
	used = size_of(path) + size_of(wal);
	wanted = 2 * used > FREE_LEAST_BYTES ? 2 * used : FREE_LEAST_BYTES;
	left = (int64_t)where.f_bavail * (int64_t)where.f_frsize;
	if (left < wanted) {
		pr_found(checkup, PR_LEVEL_WARNING,
			 "Only %lld MB are free beside a database of %lld MB",
			 (long long)(left / 1024 / 1024), (long long)(used / 1024 / 1024));
		pr_found_detail(checkup,
				"When the disk is full, producers cannot commit and the relay "
				"cannot settle. VACUUM needs twice the size of the database.");
		pr_found_advice(checkup,
				"The administrator frees space, or purges delivered messages.");
		pr_found_command(checkup,
				 "postroom purge --status delivered --older-than 1d --yes");
	}
	pr_check_end(checkup);
}

void pr_sqlite_inspect_file(const char *url, struct pr_checkup *checkup)
{
	const char *path = strncmp(url, "sqlite:", 7) == 0 ? url + 7 : url;
	char directory[PATH_SIZE];

	directory_of(path, directory);
	check_file_system(directory, checkup);
	check_names(path, checkup);
	check_writable(path, directory, checkup);
	check_space(path, directory, checkup);
}
