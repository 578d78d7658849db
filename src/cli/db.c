/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

int cli_store_fail(struct cli *cli, const struct pr_err *err)
{
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
		status = store->ops->check_schema(store, &err);
	if (status < 0) {
		pr_store_close(store);
		return cli_fail(cli, "%s", err.text);
	}
	*ret = store;
	return CLI_DONE;
}
