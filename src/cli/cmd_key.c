/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

static int key_run(struct cli *cli, void *options)
{
	const char *const *args = cli->args;
	const char *version = cli->arg_count > 4 ? args[4] : NULL;
	char key[POSTROOM_ID_SIZE];
	int status = postroom_key(args[0], args[1], args[2], args[3], version, key);

	(void)options;
	if (status == POSTROOM_NOMEM)
		return cli_fail(cli, "key: no memory");
	if (status < 0)
		return cli_fail(cli,
				"key: only ENTITY may contain a ':', and every part must be UTF-8");
	if (cli->global.json) {
		cli_begin_object(cli);
		cli_put_member(&cli->out, "key", key);
		cli_end_object(cli);
	} else {
		pr_buf_printf(&cli->out, "%s\n", key);
	}
	return CLI_DONE;
}

const struct cli_command cmd_key = {
	.name = "key",
	.synopsis = "TENANT CATEGORY ENTITY KIND [VERSION]",
	.summary = "Print the deterministic idempotency key of an event",
	.about = "The same five parts always give the same UUID: here, in the C library and in "
		 "SQL. It is the first 16 bytes of SHA-256 over "
		 "tenant:category:entity:kind:version in lower case. The default VERSION is 0. "
		 "Only ENTITY may contain a ':'. Nothing is written.",
	.examples = "postroom key 7b9f0a52-4c1e-4d1f-9d53-0c9f4b7f2a10 order 4711 created\n"
		    "postroom key '' invoice eu:2026:17 paid 2",
	.min_args = 4,
	.max_args = 5,
	.run = key_run,
};
