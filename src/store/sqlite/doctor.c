/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a SQLite database.
 *
 * 1. Nothing is written, and no statement runs for longer than its time: a progress handler
 *    interrupts it. In WAL mode a reader blocks no writer; in other modes it gets an instant.
 * 2. Statements name the index that they read (INDEXED BY) and have a limit.
 */
#include "store/sqlite/doctor.h"

#include "store/schema.h"

#include "base/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATEMENT_US ((int64_t)2000 * 1000)
#define STATEMENT_BLOCKING_US ((int64_t)200 * 1000)
/* The columns of a check's result. */
enum { LEVEL, TITLE, DETAIL, ADVICE, COMMAND };

/*
 * Each row is a finding. Parameters: ?1 now, ?2 and ?3 the patience with messages and leases,
 * ?4, ?5 and ?6 the retention of outbox, inbox and dedupe keys (< 0: without end), all in
 * microseconds.
 */
static const struct sqlite_check {
	const char *id;
	const char *title;
	const char *sql;
} checks[] = {
	{ "expired-leases", "No expired lease waits for a relay",
	  "SELECT 'warning', printf('%d%s expired leases in the %s', count(*), "
	  "CASE count(*) WHEN 1000 THEN ' or more' ELSE '' END, box), "
	  "printf('The oldest expired %d s ago. Their worker died, and no relay or consumer with "
	  "their "
	  "scope took them over.', (?1 - min(locked_until)) / 1000000), "
	  "'Start a relay (or a consumer of the handler) whose namespace, topic, tenant and routes "
	  "include these messages.', CASE box WHEN 'inbox' THEN 'postroom inbox list --status "
	  "active' "
	  "ELSE 'postroom list --status processing' END FROM ("
	  "SELECT 'outbox' AS box, * FROM (SELECT locked_until FROM postroom_outbox INDEXED BY "
	  "postroom_outbox_leased WHERE status = 'processing' AND locked_until < ?1 - ?3 "
	  "ORDER BY locked_until LIMIT 1000) UNION ALL "
	  "SELECT 'inbox', * FROM (SELECT locked_until FROM postroom_inbox INDEXED BY "
	  "postroom_inbox_leased WHERE status = 'active' AND locked_until < ?1 - ?3 "
	  "ORDER BY locked_until LIMIT 1000)) GROUP BY box" },
	{ "delivering", "Due messages are being delivered",
	  "SELECT 'warning', 'No relay seems to deliver messages', "
	  "printf('The oldest due message has waited for %d s.', (?1 - min(due)) / 1000000), "
	  "'The operator starts a relay. If one runs, look at its log: its sink may be down, or "
	  "its "
	  "scope or routes may not include the message.', 'postroom list --status pending --limit "
	  "5' "
	  "FROM (SELECT * FROM (SELECT next_attempt_at AS due FROM postroom_outbox INDEXED BY "
	  "postroom_outbox_ready WHERE status = 'pending' AND (state = 'ready' OR (state = 'new' AND "
	  "next_attempt_at = created_at)) ORDER BY seq LIMIT 1) UNION ALL "
	  "SELECT * FROM (SELECT next_attempt_at FROM postroom_outbox INDEXED BY "
	  "postroom_outbox_due "
	  "WHERE status = 'pending' AND (state IN ('scheduled', 'dead') OR (state = 'new' AND next_attempt_at <> "
	  "created_at)) ORDER BY next_attempt_at, seq LIMIT 1)) WHERE due < ?1 - ?2 "
	  "HAVING count(*) > 0" },
	{ "handling", "Due events of the inbox are being handled",
	  "SELECT 'warning', printf('No consumer handles the events of handler \"%s\"', handler), "
	  "printf('The oldest due event has waited for %d s.', (?1 - due) / 1000000), "
	  "'The operator starts a consumer of the handler. If one runs, see its log: the handler may "
	  "fail or take too long.', printf('postroom inbox list --status pending --limit 5 --handler "
	  "''%s''', replace(handler, '''', '''\\''''')) "
	  "FROM (SELECT * FROM (SELECT handler_name AS handler, next_attempt_at AS due FROM "
	  "postroom_inbox INDEXED BY postroom_inbox_ready WHERE status = 'pending' AND (state = "
	  "'ready' OR (state = 'new' AND next_attempt_at = created_at)) ORDER BY seq LIMIT 1) UNION ALL "
	  "SELECT * FROM (SELECT handler_name, next_attempt_at FROM postroom_inbox INDEXED BY "
	  "postroom_inbox_due WHERE status = 'pending' AND (state IN ('scheduled', 'dead') OR (state = "
	  "'new' AND next_attempt_at <> created_at)) ORDER BY next_attempt_at, seq LIMIT 1)) "
	  "WHERE due < ?1 - ?2 ORDER BY due LIMIT 1" },
	{ "stranded", "Every row is reachable by a claim, a sweep or a purge",
	  "SELECT 'problem', printf('%d%s stranded rows: %s', number, "
	  "CASE number WHEN 1000 THEN ' or more' ELSE '' END, why), "
	  "'No claim, sweep or purge will ever find them. Their columns were changed by "
	  "hand.', "
	  "'The owner of the file looks at the rows and runs the command with sqlite3.', command "
	  "FROM ("
	  "SELECT 'held behind a key, but without a key' AS why, (SELECT count(*) FROM (SELECT 1 "
	  "FROM "
	  "postroom_outbox INDEXED BY postroom_outbox_held WHERE state = 'held' AND key IS NULL LIMIT "
	  "1000)) "
	  "AS number, 'UPDATE postroom_outbox SET state = ''scheduled'' WHERE state = ''held'' AND key IS NULL;' AS "
	  "command "
	  "UNION ALL SELECT 'due in more than ten years', (SELECT count(*) FROM (SELECT 1 FROM "
	  "postroom_outbox INDEXED BY postroom_outbox_due WHERE status = 'pending' AND (state IN "
	  "('scheduled', 'dead') "
	  "OR (state = 'new' AND next_attempt_at <> created_at)) AND next_attempt_at > ?1 + "
	  "316224000000000 "
	  "LIMIT 1000)), 'UPDATE postroom_outbox SET next_attempt_at = created_at WHERE status = "
	  "''pending'' AND next_attempt_at > ' || (?1 + 316224000000000) || ';' "
	  "UNION ALL SELECT 'leased for more than a week', (SELECT count(*) FROM (SELECT 1 FROM "
	  "postroom_outbox INDEXED BY postroom_outbox_leased WHERE status = 'processing' AND "
	  "locked_until > ?1 + 604800000000 LIMIT 1000)), 'UPDATE postroom_outbox SET locked_until "
	  "= ' "
	  "|| ?1 || ' WHERE status = ''processing'' AND locked_until > ' || (?1 + 604800000000) || "
	  "';' "
	  "UNION ALL SELECT 'delivered without a delivered_at, so never purged', (SELECT count(*) "
	  "FROM "
	  "(SELECT 1 FROM postroom_outbox INDEXED BY postroom_outbox_delivered WHERE status = "
	  "'delivered' AND delivered_at IS NULL LIMIT 1000)), 'UPDATE postroom_outbox SET "
	  "delivered_at = "
	  "updated_at WHERE status = ''delivered'' AND delivered_at IS NULL;' "
	  "UNION ALL SELECT 'purged only in more than ten years', (SELECT count(*) FROM "
	  "(SELECT 1 FROM postroom_outbox INDEXED BY postroom_outbox_delivered WHERE status = "
	  "'delivered' AND delivered_at > ?1 + 316224000000000 LIMIT 1000)), 'UPDATE postroom_outbox SET "
	  "delivered_at = ' || ?1 || ' WHERE status = ''delivered'' AND delivered_at > ' || "
	  "(?1 + 316224000000000) || ';' "
	  "UNION ALL SELECT 'in the inbox, purged only in more than ten years', (SELECT count(*) FROM "
	  "(SELECT 1 FROM postroom_inbox INDEXED BY postroom_inbox_completed WHERE status = "
	  "'completed' AND updated_at > ?1 + 316224000000000 LIMIT 1000)), 'UPDATE postroom_inbox SET "
	  "updated_at = ' || ?1 || ' WHERE status = ''completed'' AND updated_at > ' || "
	  "(?1 + 316224000000000) || ';' "
	  "UNION ALL SELECT 'held in the inbox behind a key, but without a key', (SELECT count(*) "
	  "FROM "
	  "(SELECT 1 FROM postroom_inbox INDEXED BY postroom_inbox_held WHERE state = 'held' AND key IS "
	  "NULL "
	  "LIMIT 1000)), 'UPDATE postroom_inbox SET state = ''ready'' WHERE state = ''held'' AND key IS NULL;' "
	  "UNION ALL SELECT 'due in the inbox in more than ten years', (SELECT count(*) FROM (SELECT 1 "
	  "FROM postroom_inbox INDEXED BY postroom_inbox_due WHERE status = 'pending' AND (state IN "
	  "('scheduled', 'dead') OR (state = 'new' AND next_attempt_at <> created_at)) AND "
	  "next_attempt_at > ?1 + 316224000000000 LIMIT 1000)), 'UPDATE postroom_inbox SET "
	  "next_attempt_at = created_at WHERE status = ''pending'' AND next_attempt_at > ' || (?1 + "
	  "316224000000000) || ';' "
	  "UNION ALL SELECT 'leased in the inbox for more than a week', (SELECT count(*) FROM "
	  "(SELECT 1 "
	  "FROM postroom_inbox INDEXED BY postroom_inbox_leased WHERE status = 'active' AND "
	  "locked_until > ?1 + 604800000000 LIMIT 1000)), 'UPDATE postroom_inbox SET locked_until "
	  "= ' "
	  "|| ?1 || ' WHERE status = ''active'' AND locked_until > ' || (?1 + 604800000000) || "
	  "';') "
	  "WHERE number > 0" },
	{ "retention", "Old rows are purged",
	  "SELECT 'note', printf('The oldest %s are from %s', what, date(at / 1000000, "
	  "'unixepoch')), "
	  "printf('They should be purged after %d s. No relay purges them, or it does not keep up, "
	  "and "
	  "the file grows.', kept / 1000000), "
	  "'A running relay purges them. To do it now, the operator runs the command.', command "
	  "FROM ("
	  "SELECT 'delivered messages' AS what, ?4 AS kept, (SELECT delivered_at FROM "
	  "postroom_outbox "
	  "INDEXED BY postroom_outbox_delivered WHERE status = 'delivered' AND delivered_at > 0 "
	  "ORDER BY delivered_at LIMIT 1) AS at, printf('postroom purge --status delivered "
	  "--older-than "
	  "%ds --yes', ?4 / 1000000) AS command UNION ALL "
	  "SELECT 'completed events of the inbox', ?5, (SELECT updated_at FROM postroom_inbox "
	  "INDEXED BY "
	  "postroom_inbox_completed WHERE status = 'completed' ORDER BY updated_at LIMIT 1), "
	  "printf('postroom inbox purge --status completed --older-than %ds --yes', ?5 / 1000000) "
	  "UNION ALL SELECT 'dedupe keys of deleted messages', ?6, (SELECT created_at FROM "
	  "postroom_dedupe INDEXED BY postroom_dedupe_age ORDER BY created_at LIMIT 1), "
	  "'postroom relay --config postroom.yaml') "
	  "WHERE kept >= 0 AND at < ?1 - kept - 86400000000 UNION ALL "
	  "SELECT 'note', printf('There are dead letters from %s', date(created_at / 1000000, "
	  "'unixepoch')), 'They have waited for a decision for more than 30 days.', 'The operator "
	  "looks at "
	  "their errors, and then retries or purges them.', 'postroom list --status dead' FROM ("
	  "SELECT created_at FROM postroom_outbox INDEXED BY postroom_outbox_dead WHERE status = "
	  "'dead' "
	  "ORDER BY seq LIMIT 1) WHERE created_at < ?1 - 2592000000000 UNION ALL "
	  "SELECT 'note', printf('There are dead events in the inbox from %s', date(created_at / "
	  "1000000, 'unixepoch')), 'They have waited for a decision for more than 30 days.', 'The "
	  "operator looks at their errors, and then retries or purges them.', 'postroom inbox list "
	  "--status dead' FROM (SELECT created_at FROM postroom_inbox INDEXED BY postroom_inbox_dead "
	  "WHERE status = 'dead' ORDER BY seq LIMIT 1) WHERE created_at < ?1 - 2592000000000" },
	{ "sizes", "Size and age of the tables",
	  "SELECT 'ok', 'Size and age of the tables', printf('File: %.1f MB; outbox: %s; inbox: %s.', "
	  "page_count * page_size / 1048576.0, coalesce((SELECT 'oldest row from ' || datetime("
	  "created_at / 1000000, 'unixepoch') FROM postroom_outbox ORDER BY seq LIMIT 1), 'no rows'), "
	  "coalesce((SELECT 'oldest row from ' || datetime(created_at / 1000000, 'unixepoch') FROM "
	  "postroom_inbox ORDER BY seq LIMIT 1), 'no rows')), NULL, NULL "
	  "FROM pragma_page_count(), pragma_page_size()" },
	{ "clock", "The clock has not been set back",
	  "SELECT 'warning', 'The newest message is from the future', printf('It was created %d s "
	  "from "
	  "now. The clock was set back, or another host with another clock writes to the file. "
	  "Leases "
	  "and delays may last longer than they should.', (created_at - ?1) / 1000000), "
	  "'The administrator of the host runs a time service.', 'timedatectl set-ntp true' FROM ("
	  "SELECT created_at FROM postroom_outbox ORDER BY seq DESC LIMIT 1) "
	  "WHERE created_at > ?1 + 60000000" },
};

int pr_sqlite_interrupt_late(void *context)
{
	const struct sqlite_inspection *in = context;

	return pr_mono_us() >= in->until_us || pr_stop_requested(in->checkup->stop);
}

sqlite3_stmt *pr_sqlite_prepare_check(struct sqlite_inspection *in, const char *sql)
{
	sqlite3_stmt *stmt = NULL;

	in->until_us = pr_mono_us() + (in->wal ? STATEMENT_US : STATEMENT_BLOCKING_US);
	sqlite3_prepare_v2(in->store->db, sql, -1, &stmt, NULL);
	return stmt;
}

void pr_sqlite_skip_failed(struct sqlite_inspection *in)
{
	struct pr_err err = { 0 };

	if (sqlite3_errcode(in->store->db) == SQLITE_INTERRUPT) {
		pr_found_skipped(in->checkup, "The check took too long and was interrupted.", NULL);
		return;
	}
	pr_sqlite_fail(in->store->db, in->store, "inspecting", &err);
	pr_found_skipped(in->checkup, err.text, NULL);
}

static enum pr_level level_of(const char *word)
{
	for (int i = 0; i < PR_LEVELS; i++) {
		if (strcmp(pr_level_names[i], word) == 0)
			return (enum pr_level)i;
	}
	return PR_LEVEL_PROBLEM;
}

static const char *text_at(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "";
}

static void run_check(struct sqlite_inspection *in, const struct sqlite_check *check)
{
	const struct pr_inspection *inspection = in->inspection;
	int64_t lease_us = (inspection->patience_ms < 60000 ? inspection->patience_ms : 60000) * 1000;
	sqlite3_stmt *stmt;
	int got;

	if (!in->tables) {
		pr_found_skipped(in->checkup, "The tables are missing or of another version.",
				 "See the check \"schema\".");
		return;
	}
	stmt = pr_sqlite_prepare_check(in, check->sql);
	if (!stmt) {
		pr_sqlite_skip_failed(in);
		return;
	}
	sqlite3_bind_int64(stmt, 1, pr_now_us());
	sqlite3_bind_int64(stmt, 2, inspection->patience_ms * 1000);
	sqlite3_bind_int64(stmt, 3, lease_us);
	sqlite3_bind_int64(stmt, 4, inspection->retention_ms < 0 ? -1 : inspection->retention_ms * 1000);
	sqlite3_bind_int64(stmt, 5,
			   inspection->inbox_retention_ms < 0 ? -1 : inspection->inbox_retention_ms * 1000);
	sqlite3_bind_int64(stmt, 6,
			   inspection->dedupe_retention_ms < 0 ? -1 : inspection->dedupe_retention_ms * 1000);
	while ((got = sqlite3_step(stmt)) == SQLITE_ROW) {
		pr_found(in->checkup, level_of(text_at(stmt, LEVEL)), "%s", text_at(stmt, TITLE));
		pr_found_detail(in->checkup, "%s", text_at(stmt, DETAIL));
		pr_found_advice(in->checkup, "%s", text_at(stmt, ADVICE));
		pr_found_command(in->checkup, "%s", text_at(stmt, COMMAND));
	}
	if (got != SQLITE_DONE)
		pr_sqlite_skip_failed(in);
	sqlite3_finalize(stmt);
}

/* The text of a pragma without a parameter; "" when it cannot be read. */
static void read_pragma(struct sqlite_inspection *in, const char *sql, char *out, size_t size)
{
	sqlite3_stmt *stmt = pr_sqlite_prepare_check(in, sql);

	out[0] = '\0';
	if (stmt && sqlite3_step(stmt) == SQLITE_ROW)
		snprintf(out, size, "%s", text_at(stmt, 0));
	sqlite3_finalize(stmt);
}

static void check_journal(struct sqlite_inspection *in)
{
	char mode[40];

	if (!pr_check_begin(in->checkup, "journal-mode", "The database is in WAL mode"))
		return;
	read_pragma(in, "PRAGMA journal_mode", mode, sizeof(mode));
	in->wal = strcmp(mode, "wal") == 0;
	if (!in->wal) {
		pr_found(in->checkup, PR_LEVEL_PROBLEM, "The journal mode is %s, not wal", mode);
		pr_found_detail(in->checkup,
				"The application and the relay block each other: readers wait "
				"for writers, and writers for readers.");
		pr_found_advice(in->checkup,
				"The owner of the file runs the command with sqlite3 while "
				"no other program uses it.");
		pr_found_command(in->checkup, "PRAGMA journal_mode = WAL;");
	}
	pr_check_end(in->checkup);
}

#define SYNCHRONOUS_FULL 2

/* The settings of a connection are its own: those of the application cannot be seen. */
static void check_synchronous(struct sqlite_inspection *in)
{
	char value[24];

	if (!pr_check_begin(in->checkup, "synchronous", "Commits of Postroom survive a power failure"))
		return;
	read_pragma(in, "PRAGMA synchronous", value, sizeof(value));
	if (atoi(value) < SYNCHRONOUS_FULL) {
		pr_found(in->checkup, PR_LEVEL_WARNING, "The connections of Postroom have synchronous = %s",
			 value);
		pr_found_detail(in->checkup,
				"A power failure may undo the last settled messages: they are "
				"delivered again.");
		pr_found_advice(in->checkup, "The administrator installs a SQLite library that accepts "
					     "PRAGMA synchronous = FULL.");
	} else {
		pr_found(in->checkup, PR_LEVEL_OK, "Commits of Postroom survive a power failure");
		pr_found_detail(in->checkup,
				"The settings of the application's own connections cannot be seen: "
				"synchronous should be FULL, and busy_timeout 5000 or more.");
	}
	pr_check_end(in->checkup);
}

static void put_recovery(struct sqlite_inspection *in)
{
	PR_CLEANUP_BUF struct pr_buf copy = { 0 };

	pr_buf_printf(&copy, "%s.recovered", in->store->path);
	pr_found_command(in->checkup, "sqlite3 ");
	pr_found_command_word(in->checkup, in->store->path);
	pr_found_command(in->checkup, " .recover | sqlite3 ");
	pr_found_command_word(in->checkup, pr_buf_text(&copy));
}

static void check_integrity(struct sqlite_inspection *in)
{
	sqlite3_stmt *stmt;
	int got = SQLITE_ERROR, rows = 0;

	if (!pr_check_begin(in->checkup, "integrity", "No damage was found"))
		return;
	stmt = pr_sqlite_prepare_check(in, "PRAGMA quick_check(10)");
	while (stmt && (got = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (strcmp(text_at(stmt, 0), "ok") == 0)
			continue;
		if (rows++ == 0)
			pr_found(in->checkup, PR_LEVEL_PROBLEM, "The database is damaged");
		pr_found_detail(in->checkup, "%s. ", text_at(stmt, 0));
	}
	if (rows == 0 && (got & 0xff) == SQLITE_CORRUPT) {
		pr_found(in->checkup, PR_LEVEL_PROBLEM, "The database is damaged");
		pr_found_detail(in->checkup, "%s. ", sqlite3_errmsg(in->store->db));
		rows = 1;
	}
	if (rows > 0) {
		pr_found_detail(in->checkup, "Messages may be unreadable or lost.");
		pr_found_advice(in->checkup,
				"Stop all programs that use the file. Its owner restores a "
				"backup, or rescues what is left with the command.");
		put_recovery(in);
	} else if (got == SQLITE_INTERRUPT) {
		pr_found_skipped(
			in->checkup,
			"No damage was found in the time that doctor has; the "
			"file is too large to be read whole.",
			"The owner of the file runs the command with sqlite3 in a quiet hour.");
		pr_found_command(in->checkup, "PRAGMA integrity_check;");
	} else if (got != SQLITE_DONE) {
		pr_sqlite_skip_failed(in);
	}
	sqlite3_finalize(stmt);
	pr_check_end(in->checkup);
}

static void check_free_pages(struct sqlite_inspection *in)
{
	char pages[24], free_pages[24];

	if (!pr_check_begin(in->checkup, "free-pages", "The file is not mostly empty"))
		return;
	read_pragma(in, "PRAGMA page_count", pages, sizeof(pages));
	read_pragma(in, "PRAGMA freelist_count", free_pages, sizeof(free_pages));
	if (atoll(pages) > 25000 && atoll(free_pages) * 2 > atoll(pages)) {
		pr_found(in->checkup, PR_LEVEL_NOTE, "%s of %s pages of the file are free",
			 free_pages, pages);
		pr_found_detail(in->checkup,
				"A large backlog was there once. New messages reuse the "
				"pages; only backups are larger than necessary.");
		pr_found_advice(in->checkup, "To shrink the file, its owner runs the command with "
					     "sqlite3 in a quiet hour. It blocks all writers.");
		pr_found_command(in->checkup, "VACUUM;");
	}
	pr_check_end(in->checkup);
}

static void check_library(struct sqlite_inspection *in)
{
	if (!pr_check_begin(in->checkup, "library", "The SQLite library fits this program"))
		return;
	if (sqlite3_libversion_number() < SQLITE_VERSION_NUMBER) {
		pr_found(in->checkup, PR_LEVEL_NOTE, "SQLite %s is older than the %s of the build",
			 sqlite3_libversion(), SQLITE_VERSION);
		pr_found_detail(in->checkup, "Statements that need the newer version may fail.");
		pr_found_advice(in->checkup, "The administrator upgrades libsqlite3.");
	}
	pr_check_end(in->checkup);
}

static void check_schema(struct sqlite_inspection *in)
{
	struct pr_err err = { 0 };

	if (!pr_check_begin(in->checkup, "schema", "The schema fits this program"))
		return;
	in->tables = pr_sqlite_check_schema(&in->store->base, PR_SCHEMA_COMPLETE, &err) >= 0;
	if (!in->tables) {
		pr_found(in->checkup, PR_LEVEL_PROBLEM, "The schema does not fit this program");
		pr_found_detail(in->checkup, "%s. Neither producers nor relays can work.",
				err.text);
		if (pr_schema_is_incompatible(&err)) {
			pr_found_advice(in->checkup, "The operator installs a newer postroom.");
		} else {
			pr_found_advice(in->checkup, "The owner of the file runs the command.");
			pr_found_command(in->checkup, "postroom migrate");
		}
	}
	pr_check_end(in->checkup);
}

int pr_sqlite_inspect(struct postroom_store *base, const struct pr_inspection *inspection,
		      struct pr_checkup *checkup, struct pr_err *err)
{
	struct sqlite_inspection in = { .store = sqlite_store(base),
					.inspection = inspection,
					.checkup = checkup };

	(void)err;
	sqlite3_progress_handler(in.store->db, SQLITE_PROGRESS_STEPS, pr_sqlite_interrupt_late, &in);
	check_journal(&in);
	pr_sqlite_check_wal(&in);
	check_synchronous(&in);
	check_schema(&in);
	pr_sqlite_check_objects(&in);
	check_integrity(&in);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (!pr_check_begin(checkup, checks[i].id, checks[i].title))
			continue;
		run_check(&in, &checks[i]);
		pr_check_end(checkup);
	}
	pr_sqlite_check_adopted(&in);
	check_free_pages(&in);
	check_library(&in);
	in.until_us = pr_mono_us() + STATEMENT_US;
	pr_inspect_routes(base, inspection, in.tables && in.store->rules.count > 0, checkup);
	sqlite3_progress_handler(in.store->db, 0, NULL, NULL);
	return POSTROOM_OK;
}
