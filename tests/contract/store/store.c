/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the store contract; the contract itself is in the other files here. */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/store.h"
#pragma GCC diagnostic pop

#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SQL_SIZE 8192

const struct backend *backend;
char url[200];
struct session *app;
postroom_store *store;

static struct session app_session;

void world_connect(void)
{
	store = open_store();
	backend->connect(&app_session, url);
	app = &app_session;
}

void begin_test(const struct backend *which)
{
	backend = which;
	backend->new_database_with_tables(url);
	world_connect();
}

void world_end(void)
{
	backend->disconnect(app);
	postroom_store_close(store);
}

void end_test(void)
{
	world_end();
	backend->drop_databases();
}

__attribute__((format(printf, 2, 0))) static void format_sql(char out[SQL_SIZE], const char *format,
							     va_list args)
{
	int length = vsnprintf(out, SQL_SIZE, format, args);

	CHECK(length >= 0 && length < SQL_SIZE);
}

void sql(struct session *session, const char *format, ...)
{
	char statement[SQL_SIZE], error[1000];
	va_list args;

	va_start(args, format);
	format_sql(statement, format, args);
	va_end(args);
	CHECK_MSG(backend->run(session, statement, error, sizeof(error)), "%s: %s", statement,
		  error);
}

const char *refused(struct session *session, const char *format, ...)
{
	static char error[1000];
	char statement[SQL_SIZE];
	va_list args;

	va_start(args, format);
	format_sql(statement, format, args);
	va_end(args);
	CHECK_MSG(!backend->run(session, statement, error, sizeof(error)), "was not refused: %s",
		  statement);
	return error;
}

int64_t number(struct session *session, const char *format, ...)
{
	char statement[SQL_SIZE], value[64];
	va_list args;

	va_start(args, format);
	format_sql(statement, format, args);
	va_end(args);
	CHECK_MSG(backend->query(session, statement, value, sizeof(value)), "no value: %s",
		  statement);
	return strtoll(value, NULL, 10);
}

const char *text(struct session *session, const char *format, ...)
{
	static char values[8][SQL_SIZE];
	static unsigned next;
	char statement[SQL_SIZE];
	char *value = values[next++ % 8];
	va_list args;

	va_start(args, format);
	format_sql(statement, format, args);
	va_end(args);
	if (!backend->query(session, statement, value, SQL_SIZE))
		return "(null)";
	return value;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

int64_t time_of(struct session *session, const char *column, const char *where)
{
	char expression[200];

	snprintf(expression, sizeof(expression), backend->to_us, column);
	return number(session, "SELECT %s FROM postroom_outbox WHERE %s", expression, where);
}

void shift(const char *column, int64_t seconds)
{
	char expression[200];

	snprintf(expression, sizeof(expression), backend->shift, column,
		 (long long)seconds * 1000000);
	sql(app, "UPDATE postroom_outbox SET %s = %s WHERE %s IS NOT NULL", column, expression,
	    column);
}

#pragma GCC diagnostic pop

int64_t database_now_us(struct session *session)
{
	return number(session, "SELECT %s", backend->now_us);
}

void begin(struct session *session)
{
	sql(session, "%s", backend->begin);
}

void commit(struct session *session)
{
	sql(session, "COMMIT");
}

void rollback(struct session *session)
{
	sql(session, "ROLLBACK");
}

struct session *join(void)
{
	struct session *session = calloc(1, sizeof(*session));

	CHECK(session);
	backend->connect(session, url);
	return session;
}

void leave(struct session *session)
{
	backend->disconnect(session);
	free(session);
}

postroom_store *open_store(void)
{
	postroom_store *opened = NULL;
	int status = postroom_store_open(url, &opened);

	CHECK_MSG(status == POSTROOM_OK, "opening %s: %d %s", url, status,
		  opened ? postroom_store_errmsg(opened) : "(no store)");
	if (backend->adapt)
		backend->adapt(opened);
	return opened;
}

postroom_receipt put_message(const postroom_message *message)
{
	postroom_receipt receipt;
	int status;

	begin(app);
	status = postroom_enqueue(app->box, message, &receipt);
	CHECK_MSG(status >= 0, "enqueue: %d %s", status, postroom_errmsg(app->box));
	commit(app);
	return receipt;
}

postroom_batch *claim_from(postroom_store *from, const postroom_claim_options *options)
{
	postroom_batch *batch = NULL;
	int status = postroom_claim(from, options, &batch);

	CHECK_MSG(status == POSTROOM_OK, "claim: %d %s", status, postroom_store_errmsg(from));
	CHECK(batch);
	return batch;
}

bool unfinished(bool block)
{
	struct pr_claim claim = { .limit = 10, .max_attempts = 10, .block = block };
	struct pr_err err = { 0 };
	bool any = false;

	CHECK_MSG(store->ops->unfinished(store, &pr_table_outbox, &claim, &any, &err) >= 0, "%s",
		  err.text);
	return any;
}

postroom_delivery *items_of(postroom_batch *batch, size_t expected)
{
	size_t count = 0;
	postroom_delivery *items = pr_batch_items(batch, &count);

	CHECK_INT(count, expected);
	return items;
}

size_t count_of(postroom_batch *batch)
{
	size_t count = 0;

	pr_batch_items(batch, &count);
	return count;
}

postroom_delivery *only_item(postroom_batch *batch)
{
	return items_of(batch, 1);
}

postroom_batch *claim_one(void)
{
	postroom_batch *batch = CLAIM(.limit = 1);

	only_item(batch);
	return batch;
}

int64_t rows(const char *status)
{
	if (!status)
		return number(app, "SELECT count(*) FROM postroom_outbox");
	return number(app, "SELECT count(*) FROM postroom_outbox WHERE status = '%s'", status);
}

/* No connection may cross a fork, so the world is closed while the others are at work. */
void in_parallel(int n, void (*fn)(void *context, int index), void *context)
{
	pid_t pids[16];

	CHECK(n <= 16);
	world_end();
	fflush(NULL);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			fn(context, i);
			fflush(NULL);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++) {
		int status = 0;

		CHECK_INT(waitpid(pids[i], &status, 0), pids[i]);
		CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
			  "process %d of %d failed (status %d)", i, n, status);
	}
	world_connect();
}

int64_t soak(int64_t in_check, int64_t in_soak)
{
	const char *asked = getenv("POSTROOM_SOAK");

	return asked && strcmp(asked, "1") == 0 ? in_soak : in_check;
}
