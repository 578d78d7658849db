/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the inspections of all stores. */
#include "store/inspect.h"

#include <errno.h>
#include <string.h>

#define UNROUTED_MOST 1000

/* A store without an entry has no checks. */
static const struct store_checks {
	const struct pr_store_ops *ops;
	int (*inspect)(struct postroom_store *store, const struct pr_inspection *inspection,
		       struct pr_checkup *checkup, struct pr_err *err);
	void (*inspect_file)(const char *url, struct pr_checkup *checkup); /* NULL: no file */
} store_checks[] = {
	{ &pr_store_sqlite, pr_sqlite_inspect, pr_sqlite_inspect_file },
	{ &pr_store_pgsql, pr_pgsql_inspect, NULL },
};

static const struct store_checks *find_checks(const struct pr_store_ops *ops)
{
	for (size_t i = 0; i < sizeof(store_checks) / sizeof(store_checks[0]); i++) {
		if (store_checks[i].ops == ops)
			return &store_checks[i];
	}
	return NULL;
}

void pr_store_inspect_file(const char *url, struct pr_checkup *checkup)
{
	const struct store_checks *checks = find_checks(pr_store_find(url));

	if (checks && checks->inspect_file)
		checks->inspect_file(url, checkup);
}

int pr_store_inspect(struct postroom_store *store, const struct pr_inspection *inspection,
		     struct pr_checkup *checkup, struct pr_err *err)
{
	const struct store_checks *checks = find_checks(store->ops);

	return checks ? checks->inspect(store, inspection, checkup, err) : POSTROOM_OK;
}

void pr_inspect_routes(struct postroom_store *store, const struct pr_inspection *inspection,
		       bool routed, struct pr_checkup *checkup)
{
	struct pr_unrouted unrouted = { 0 };
	struct pr_err err = { 0 };

	if (!routed || !pr_check_begin(checkup, "unrouted", "Every waiting message has a route"))
		return;
	if (pr_store_unrouted(store, &pr_table_outbox, inspection->scope, UNROUTED_MOST, &unrouted,
			      &err) < 0) {
		pr_found_skipped(checkup, err.text, NULL);
	} else if (unrouted.count > 0) {
		pr_found(checkup, PR_LEVEL_WARNING, "%lld%s messages match no route",
			 (long long)unrouted.count,
			 unrouted.count == UNROUTED_MOST ? " or more" : "");
		pr_found_detail(
			checkup,
			"One of them has topic \"%s\" and namespace \"%s\". They wait until a "
			"route matches them.",
			unrouted.topic, unrouted.ns);
		pr_found_advice(
			checkup,
			"The operator adds a route to the configuration and reloads the relay, "
			"or corrects the topic in the producer.");
		pr_found_command(checkup, "postroom list --status pending --topic ");
		pr_found_command_word(checkup, unrouted.topic);
		pr_found_command(checkup, " --namespace ");
		pr_found_command_word(checkup, unrouted.ns);
	}
	pr_check_end(checkup);
}

void pr_store_explain_failure(const char *url, const struct pr_err *err, struct pr_checkup *checkup)
{
	bool embedded = pr_store_is_embedded(url);

	pr_found(checkup, PR_LEVEL_PROBLEM, "The database cannot be opened");
	pr_found_detail(checkup, "%s.", err->text);
	if (strncmp(err->sqlstate, "28", 2) == 0) {
		pr_found_advice(checkup, "The operator corrects the user or the password in the "
					 "database URL, or the administrator pg_hba.conf.");
	} else if (err->status == POSTROOM_INVALID) {
		pr_found_advice(checkup, "The operator corrects the database URL.");
	} else if (embedded && err->native == ENOENT) {
		pr_found_advice(checkup,
				"The operator corrects the path. If the database is new, the "
				"owner of the application runs the command, which creates it.");
		pr_found_command(checkup, "postroom migrate");
	} else if (embedded) {
		pr_found_advice(checkup, "The owner of the file makes it readable and writable for "
					 "this user, or the operator corrects the path.");
	} else {
		pr_found_advice(checkup, "The administrator starts the server, or the operator "
					 "corrects the database URL.");
	}
}
