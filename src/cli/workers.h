/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that has workers: they are called the same and mean the same. */
#ifndef PR_CLI_WORKERS_H
#define PR_CLI_WORKERS_H

#include "cli/cli.h"

#include "relay/relay.h"

struct cli_workers {
	struct pr_relay_config config;
	int64_t max_attempts;
	int64_t backoff;
	int64_t on_dead;
	int64_t max_error_length;
};

extern const char *const cli_backoffs[];
extern const char *const cli_on_dead[]; /* as postroom_on_dead */

/* Lines of a table of options. OPTION(member) is where a member of struct cli_workers is. */
#define CLI_WORKERS_PARAMS(OPTION)                                                                 \
	{ .name = "workers",                                                                       \
	  .type = PR_PARAM_INT,                                                                    \
	  .offset = OPTION(config.workers),                                                        \
	  .value = "N",                                                                            \
	  .fallback = "2",                                                                         \
	  .min = 1,                                                                                \
	  .max = 256,                                                                              \
	  .help = "how many work at the same time" },                                              \
	{ .name = "batch-size",                                                                    \
	  .type = PR_PARAM_INT,                                                                    \
	  .offset = OPTION(config.batch_size),                                                     \
	  .value = "N",                                                                            \
	  .fallback = "500",                                                                       \
	  .min = 1,                                                                                \
	  .max = 10000,                                                                            \
	  .help = "most messages claimed at once" },                                               \
	{ .name = "lease",                                                                         \
	  .type = PR_PARAM_DURATION,                                                               \
	  .offset = OPTION(config.lease_ms),                                                       \
	  .value = "DUR",                                                                          \
	  .fallback = "30s",                                                                       \
	  .min = 30,                                                                               \
	  .max = 86400000,                                                                         \
	  .help = "how long a claim holds; then another relay may take over" },                    \
	{ .name = "poll-interval",                                                                 \
	  .type = PR_PARAM_DURATION,                                                               \
	  .offset = OPTION(config.poll_interval_ms),                                               \
	  .value = "DUR",                                                                          \
	  .min = 1,                                                                                \
	  .max = 86400000,                                                                         \
	  .help = "how often to look for work (default: the smaller of 1s and a third of the "     \
		  "lease)" },                                                                      \
	{ .name = "max-attempts",                                                                  \
	  .type = PR_PARAM_INT,                                                                    \
	  .offset = OPTION(max_attempts),                                                          \
	  .value = "N",                                                                            \
	  .fallback = "10",                                                                        \
	  .min = 1,                                                                                \
	  .max = 1000000,                                                                          \
	  .help = "a message that failed so often is dead" },                                      \
	{ .name = "base-delay",                                                                    \
	  .type = PR_PARAM_DURATION,                                                               \
	  .offset = OPTION(config.policy.base_delay_ms),                                           \
	  .value = "DUR",                                                                          \
	  .fallback = "1s",                                                                        \
	  .max = 30LL * 86400000,                                                                  \
	  .help = "wait before the second attempt; doubles each time" },                           \
	{ .name = "max-delay",                                                                     \
	  .type = PR_PARAM_DURATION,                                                               \
	  .offset = OPTION(config.policy.max_delay_ms),                                            \
	  .value = "DUR",                                                                          \
	  .fallback = "5m",                                                                        \
	  .max = 30LL * 86400000,                                                                  \
	  .help = "longest wait between attempts" },                                               \
	{ .name = "backoff",                                                                       \
	  .type = PR_PARAM_CHOICE,                                                                 \
	  .offset = OPTION(backoff),                                                               \
	  .value = "KIND",                                                                         \
	  .fallback = "exponential",                                                               \
	  .choices = cli_backoffs,                                                                 \
	  .help = "how the wait grows" },                                                          \
	{ .name = "on-dead",                                                                       \
	  .type = PR_PARAM_CHOICE,                                                                 \
	  .offset = OPTION(on_dead),                                                               \
	  .value = "WHAT",                                                                         \
	  .fallback = "continue",                                                                  \
	  .choices = cli_on_dead,                                                                  \
	  .help = "what a dead message does to the later ones of its key; block holds them back "  \
		  "until it is retried or purged" },                                               \
	{ .name = "max-error-length",                                                              \
	  .type = PR_PARAM_INT,                                                                    \
	  .offset = OPTION(max_error_length),                                                      \
	  .value = "N",                                                                            \
	  .fallback = "2000",                                                                      \
	  .min = 1,                                                                                \
	  .max = 100000,                                                                           \
	  .help = "characters of a failure's reason that are kept" }

#define CLI_GRACE_PARAM(OPTION)                                                                    \
	{ .name = "shutdown-grace",                                                                \
	  .type = PR_PARAM_DURATION,                                                               \
	  .offset = OPTION(config.shutdown_grace_ms),                                              \
	  .value = "DUR",                                                                          \
	  .fallback = "20s",                                                                       \
	  .max = 86400000,                                                                         \
	  .help = "how long to finish what is in flight when told to stop" }

#define CLI_DEAD_RETENTION_PARAM(OPTION)                                                           \
	{ .name = "dead-retention",                                                                \
	  .type = PR_PARAM_PERIOD,                                                                 \
	  .offset = OPTION(config.dead_retention_ms),                                              \
	  .value = "DUR",                                                                          \
	  .fallback = "never",                                                                     \
	  .max = CLI_AGE_MAX_MS,                                                                   \
	  .help = "dead messages are deleted after this" }

#define CLI_INBOX_RETENTION_PARAM(OPTION)                                                          \
	{ .name = "inbox-retention",                                                               \
	  .type = PR_PARAM_PERIOD,                                                                 \
	  .offset = OPTION(config.inbox_retention_ms),                                             \
	  .value = "DUR",                                                                          \
	  .fallback = "30d",                                                                       \
	  .min = 1,                                                                                \
	  .max = CLI_AGE_MAX_MS,                                                                   \
	  .help = "what is completed is deleted from the inbox after this, and new when it comes " \
		  "again" }

/* Fills in what the options do not reach: the policy, the log, the schema. */
void cli_workers_finish(struct cli_workers *workers, const struct cli *cli);

#endif
