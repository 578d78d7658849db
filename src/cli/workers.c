/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/workers.h"

const char *const cli_backoffs[] = { "exponential", "constant", NULL };
const char *const cli_on_dead[] = { "continue", "block", NULL };

void cli_workers_finish(struct cli_workers *workers, const struct cli *cli)
{
	struct pr_relay_config *config = &workers->config;

	config->schema = cli->global.schema;
	config->policy.max_attempts = (int32_t)workers->max_attempts;
	config->policy.backoff = (postroom_backoff)workers->backoff;
	config->policy.max_error_length = (int32_t)workers->max_error_length;
	config->policy.block = workers->on_dead == POSTROOM_ON_DEAD_BLOCK;
	config->log_level = (enum pr_log_level)cli->global.log_level;
	config->log_format = (enum pr_log_format)cli->global.log_format;
}
