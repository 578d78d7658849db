/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the inspections of all stores. */
#include "store/inspect.h"

#include <string.h>

#define UNROUTED_MOST 1000

int pr_store_inspect(struct postroom_store *store, const struct pr_inspection *inspection,
		     struct pr_checkup *checkup, struct pr_err *err)
{
	if (store->ops == &pr_store_pgsql)
		return pr_pgsql_inspect(store, inspection, checkup, err);
	return pr_sqlite_inspect(store, inspection, checkup, err);
}

void pr_inspect_routes(struct postroom_store *store, const struct pr_inspection *inspection,
		       bool routed, struct pr_checkup *checkup)
{
	struct pr_unrouted unrouted = { 0 };
	struct pr_err err = { 0 };

	if (!routed || !pr_check_begin(checkup, "unrouted", "Every waiting message has a route"))
		return;
	if (store->ops->unrouted(store, &pr_table_outbox, inspection->scope, UNROUTED_MOST,
				 &unrouted, &err) < 0) {
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
		pr_found_command(checkup,
				 "postroom list --status pending --topic '%s' --namespace '%s'",
				 unrouted.topic, unrouted.ns);
	}
	pr_check_end(checkup);
}

void pr_store_explain_failure(const char *url, const struct pr_err *err, struct pr_checkup *checkup)
{
	bool embedded = pr_store_is_embedded(url);

	pr_found(checkup, PR_LEVEL_PROBLEM, "The database cannot be opened");
	pr_found_detail(checkup, "%s.", err->text);
	if (strncmp(err->sqlstate, "28", 2) == 0)
		pr_found_advice(checkup, "The operator corrects the user or the password in the "
					 "database URL, or the administrator pg_hba.conf.");
	else if (err->status == POSTROOM_INVALID)
		pr_found_advice(checkup, "The operator corrects the database URL.");
	else if (embedded)
		pr_found_advice(checkup, "The owner of the file makes it readable and writable for "
					 "this user, or the operator corrects the path.");
	else
		pr_found_advice(checkup, "The administrator starts the server, or the operator "
					 "corrects the database URL.");
}
