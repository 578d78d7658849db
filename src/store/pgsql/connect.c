/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to one of the URL's hosts.
 *
 * 1. Each host has its own timeout: in non-blocking mode, libpq walks a list without a timeout,
 *    and a host that accepts the connection and then hangs would hide the one that was promoted in
 *    its place.
 * 2. A refusal (password, database) ends the search. Only a host that is unreachable or does not
 *    satisfy target_session_attrs is skipped.
 * 3. The error for an invalid URL does not quote it if it contains a secret.
 */
#include "base/time.h"
#include "base/url.h"
#include "store/pgsql/pgsql.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For one host, unless the URL has a connect_timeout. */
#define CONNECT_MS 10000

#define DOING "connecting"

static int refuse_password(struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID,
			  "the database URL cannot be read; in a password, write @ as %%40, "
			  "/ as %%2F, ? as %%3F and %% as %%25");
}

static int refuse_url(const struct pgsql_store *store, const char *why, struct pr_err *err)
{
	if (strcmp(store->url, store->shown) != 0)
		return refuse_password(err);
	return pr_err_set(err, POSTROOM_INVALID, "the database URL %s cannot be read: %.*s",
			  store->shown, (int)strcspn(why, "\n"), why);
}

/* Behind an '@' or '/' that should have been escaped, a password would be taken for a host. */
static bool has_unescaped_password(const char *url)
{
	const char *authority = strstr(url, "://");
	const char *end, *colon, *at;

	if (!authority)
		return false;
	authority += 3;
	end = authority + strcspn(authority, "/?");
	colon = memchr(authority, ':', (size_t)(end - authority));
	at = memchr(authority, '@', (size_t)(end - authority));
	if (at)
		return memchr(at + 1, '@', (size_t)(end - at - 1));
	return colon && memchr(end, '@', strcspn(end, "?"));
}

static const char *value_of(const PQconninfoOption *options, const char *name)
{
	for (; options->keyword; options++) {
		if (strcmp(options->keyword, name) == 0)
			return options->val && *options->val ? options->val : NULL;
	}
	return NULL;
}

static size_t count_items(const char *list)
{
	size_t count = list ? 1 : 0;

	for (; list && *list; list++)
		count += *list == ',';
	return count;
}

/* The nth of a list, or the only one. */
static void copy_item(const char *list, size_t n, char *out, size_t size)
{
	if (count_items(list) <= 1)
		n = 0;
	for (; n > 0; n--)
		list = strchr(list, ',') + 1;
	snprintf(out, size, "%.*s", (int)strcspn(list, ","), list);
}

static int finish_connecting(struct pgsql_store *store, int64_t timeout_ms, bool finishing,
			     struct pr_err *err)
{
	int64_t until_us = pr_mono_us() + timeout_ms * 1000;

	for (;;) {
		PostgresPollingStatusType want = PQconnectPoll(store->conn);
		int status;

		if (want == PGRES_POLLING_OK) {
			/* Or libpq itself would wait for a server that does not read. */
			PQsetnonblocking(store->conn, 1);
			return POSTROOM_OK;
		}
		if (want == PGRES_POLLING_FAILED)
			return pr_pgsql_fail(store->conn, NULL, store->shown, DOING, err);
		status = pr_pgsql_wait_socket(store,
					      want == PGRES_POLLING_READING ? POLLIN : POLLOUT,
					      until_us, !finishing, DOING, err);
		if (status < 0)
			return status;
	}
}

/* The name is in literals and function bodies, too, and a name is 63 bytes long. */
static int check_schema_name(const char *schema, struct pr_err *err)
{
	if (*schema && strlen(schema) < 64 && !strpbrk(schema, "'$\\{}"))
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "\"%.64s\" cannot be a schema of Postroom: at most 63 bytes, and none of "
			  "' $ \\ { }",
			  schema);
}

/*
 * A pooler hands out a process id of its own making: if the server says
 * another, nothing may be kept in this session. Otherwise it is made READ
 * COMMITTED, whatever the database's default: at other levels workers would
 * fail for each other's sake.
 */
#define TIMEOUTS                                                                                   \
	"'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', "             \
	"'transaction_timeout'"

/*
 * Timeouts of the role or the database are meant for applications: one between the cost of
 * a claim and that of a settle would cancel every settle, and delivered messages would end
 * as dead letters. Timeouts in the URL are meant for us and stay. Behind a pooler each
 * pipeline sets its own: see pr_pgsql_pipe().
 */
static int reset_timeouts(struct pgsql_store *store, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result =
		pr_pgsql_query(store,
			       "SELECT set_config(name, '0', false) FROM pg_settings "
			       "WHERE name IN (" TIMEOUTS ") AND source <> 'client'",
			       NULL, DOING, err);

	return result ? POSTROOM_OK : err->status;
}

static int check_server(struct pgsql_store *store, const char *schema, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	pr_pgsql_text(&params, schema);
	pr_pgsql_number(&params, PQbackendPID(store->conn));
	result = pr_pgsql_query(store,
				"SELECT quote_ident(name) || '.', pg_backend_pid(), "
				"current_setting('server_encoding'), name, "
				"CASE WHEN pg_backend_pid() = $2::int THEN "
				"set_config('default_transaction_isolation', 'read committed', false) END, "
				"EXISTS (SELECT FROM unnest(ARRAY[" TIMEOUTS "]) AS name "
				"WHERE current_setting(name, true) <> '0') "
				"FROM (SELECT coalesce($1::text, current_schema(), 'public')) "
				"AS schema(name)",
				&params, DOING, err);
	if (!result)
		return err->status;
	if (check_schema_name(PQgetvalue(result, 0, 3), err) < 0)
		return err->status;
	snprintf(store->schema, sizeof(store->schema), "%s", PQgetvalue(result, 0, 0));
	store->pooled = atoi(PQgetvalue(result, 0, 1)) != PQbackendPID(store->conn);
	if (strcmp(PQgetvalue(result, 0, 2), "UTF8") != 0)
		return pr_err_set(err, POSTROOM_DATABASE,
				  DOING ": %s is a database in %s; Postroom needs one in UTF8",
				  store->shown, PQgetvalue(result, 0, 2));
	if (!store->pooled && *PQgetvalue(result, 0, 5) == 't')
		return reset_timeouts(store, err);
	return POSTROOM_OK;
}

/* A statement ends on the server too: the end of our connection would not end its wait for a lock. */
static int limit_statements(struct pgsql_store *store, int64_t query_ms, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	char sql[64];

	if (!query_ms || store->pooled)
		return POSTROOM_OK;
	snprintf(sql, sizeof(sql), "SET statement_timeout = %lld", (long long)query_ms);
	result = pr_pgsql_query(store, sql, NULL, DOING, err);
	return result ? POSTROOM_OK : err->status;
}

/* Settings that libpq reads only now, and refuses. */
static bool is_about_settings(const char *message)
{
	return strncmp(message, "invalid ", 8) == 0 || strncmp(message, "could not match ", 16) == 0;
}

/* Discards notices ("relation already exists, skipping"), which libpq would print. */
static void ignore_notice(void *context, const PGresult *notice)
{
	(void)context, (void)notice;
}

/* The settings of a connection to one of the hosts. */
struct connecting {
	const char **names, **values; /* room for all options and the program's own */
	bool finishing;
};

static int connect_with(struct pgsql_store *store, const struct connecting *with,
			int64_t timeout_ms, struct pr_err *err)
{
	store->conn = PQconnectStartParams(with->names, with->values, 0);
	if (!store->conn)
		return pr_err_nomem(err);
	/* Verbose, so that a refusal carries its code. */
	PQsetErrorVerbosity(store->conn, PQERRORS_VERBOSE);
	PQsetNoticeReceiver(store->conn, ignore_notice, NULL);
	if (PQstatus(store->conn) == CONNECTION_BAD && is_about_settings(PQerrorMessage(store->conn)))
		return refuse_url(store, PQerrorMessage(store->conn), err);
	if (PQstatus(store->conn) == CONNECTION_BAD)
		return pr_pgsql_fail(store->conn, NULL, store->shown, DOING, err);
	return finish_connecting(store, timeout_ms, with->finishing, err);
}

static int connect_host(struct pgsql_store *store, const PQconninfoOption *options, size_t n,
			const struct connecting *with, struct pr_err *err)
{
	const char **names = with->names, **values = with->values;
	const char *timeout = value_of(options, "connect_timeout");
	int64_t timeout_ms = timeout && atoi(timeout) > 0 ? atoi(timeout) * 1000LL : CONNECT_MS;
	static const char *const lists[] = { "host", "hostaddr", "port" };
	char items[3][300];
	size_t count = 0;

	names[count] = "fallback_application_name";
	values[count++] = "postroom";
	for (; options->keyword; options++) {
		if (!options->val)
			continue;
		names[count] = options->keyword;
		values[count] = options->val;
		for (size_t i = 0; i < 3; i++) {
			if (strcmp(options->keyword, lists[i]) != 0)
				continue;
			copy_item(options->val, n, items[i], sizeof(items[i]));
			values[count] = items[i];
		}
		count++;
	}
	/* Last, and so the one that counts: every text here is in UTF-8. */
	names[count] = "client_encoding";
	values[count++] = "UTF8";
	names[count] = NULL;
	values[count] = NULL;
	return connect_with(store, with, timeout_ms, err);
}

/* How many hosts there are to try, or 0 if the lists do not fit together. */
static size_t count_hosts(const PQconninfoOption *options)
{
	size_t hosts = count_items(value_of(options, "host"));
	size_t addresses = count_items(value_of(options, "hostaddr"));
	size_t ports = count_items(value_of(options, "port"));
	size_t count = addresses ? addresses : hosts ? hosts : 1;

	if ((hosts && hosts != count) || (ports > 1 && ports != count))
		return 0;
	return count;
}

static int connect_any(struct pgsql_store *store, const PQconninfoOption *options,
		       const struct pr_store_config *config, struct pr_err *err)
{
	size_t hosts = count_hosts(options);
	int status = POSTROOM_UNAVAILABLE;
	struct connecting with = { .finishing = config->finishing };
	size_t room = 3;

	for (const PQconninfoOption *option = options; option->keyword; option++)
		room++;
	with.names = reallocarray(NULL, 2 * room, sizeof(*with.names));
	if (!with.names)
		return pr_err_nomem(err);
	with.values = with.names + room;
	if (hosts == 0)
		status = refuse_url(store, "there must be as many ports as hosts, or one", err);
	for (size_t n = 0; n < hosts && status == POSTROOM_UNAVAILABLE; n++) {
		PQfinish(store->conn);
		store->conn = NULL;
		status = connect_host(store, options, n, &with, err);
		if (status >= 0)
			status = check_server(store, config->schema, err);
		if (status >= 0)
			status = limit_statements(store, config->query_ms, err);
	}
	free(with.names);
	return status;
}

int pr_pgsql_connect(struct pgsql_store *store, const struct pr_store_config *config,
		     struct pr_err *err)
{
	char *why = NULL;
	PQconninfoOption *options;
	int status;

	if (has_unescaped_password(store->url))
		return refuse_password(err);
	options = PQconninfoParse(store->url, &why);
	if (!options && !why)
		return pr_err_nomem(err);
	if (options)
		status = connect_any(store, options, config, err);
	else
		status = refuse_url(store, why, err);
	PQconninfoFree(options);
	PQfreemem(why);
	return status;
}
