/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "store/action.h"

#include <string.h>

int cli_read_tenant(struct cli *cli, const char *text, char out[PR_UUID_SIZE])
{
	if (text && !pr_uuid_normalize(text, out))
		return cli_usage(cli, "--tenant takes a UUID, not \"%s\"", text);
	return CLI_DONE;
}

int cli_filter_read(struct cli *cli, struct cli_filter *filter, postroom_filter *ret)
{
	int status = cli_read_tenant(cli, filter->tenant, filter->tenant_text);

	/* Every error contains it: a script that lost its value would change them all. */
	if (filter->error && !*filter->error)
		return cli_usage(cli, "--error takes a part of an error, not \"\"");
	if (filter->sink && !*filter->sink)
		return cli_usage(cli, "--sink takes the name of a sink or <none>, not \"\"");
	ret->ns = filter->ns;
	ret->topic = filter->topic;
	ret->tenant_id = filter->tenant ? filter->tenant_text : NULL;
	ret->key = filter->key;
	ret->error = filter->error;
	ret->sink = filter->sink && strcmp(filter->sink, PR_NONE) == 0 ? "" : filter->sink;
	if (status == CLI_DONE)
		status = cli_read_when(cli, "since", filter->since, &ret->created_from_us);
	if (status == CLI_DONE)
		status = cli_read_when(cli, "until", filter->until, &ret->created_to_us);
	return status;
}

bool cli_filter_any(const struct cli_filter *filter)
{
	return filter->ns || filter->topic || filter->tenant || filter->key || filter->error ||
	       filter->sink || filter->since || filter->until;
}
