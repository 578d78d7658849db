/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

int cli_store_fail(struct cli *cli, const struct pr_err *err)
{
	if (err->status == POSTROOM_UNAVAILABLE && !strstr(err->text, "; "))
		return cli_fail(cli, "%s; check that the server runs and the database URL names it",
				err->text);
	/* A URL that no store supports is a usage error. */
	if (err->status == POSTROOM_INVALID)
		return cli_usage(cli, "%s", err->text);
	return cli_fail(cli, "%s", err->text);
}

int cli_open_store(struct cli *cli, enum cli_open mode, struct postroom_store **ret)
{
	const struct pr_store_config config = {
		.url = cli->global.db,
		.create = mode == CLI_OPEN_CREATE,
		.busy_wait_ms = CLI_BUSY_WAIT_MS,
		.schema = cli->global.schema,
	};
	struct postroom_store *store = NULL;
	struct pr_err err = { 0 };
	int status = pr_store_open(&config, &store, &err);

	if (status < 0)
		return cli_store_fail(cli, &err);
	if (mode == CLI_OPEN_CREATE)
		status = pr_store_ready(store, &err);
	else
		status = store->ops->check_schema(store, PR_SCHEMA_COMPLETE, &err);
	if (status < 0) {
		pr_store_close(store);
		return cli_store_fail(cli, &err);
	}
	*ret = store;
	return CLI_DONE;
}

int cli_row_fail(struct cli *cli, const char *doing, int status, struct postroom_store *store)
{
	const char *why = postroom_store_errmsg(store);

	if (status != POSTROOM_NOT_FOUND || strncmp(why, "there is no ", 12) != 0)
		return cli_fail(cli, "%s%s", doing, why);
	return cli_fail(cli, "%s%s; `postroom %slist` prints the ids", doing, why,
			strncmp(doing, "inbox", strlen("inbox")) == 0 ? "inbox " : "");
}
