/* SPDX-License-Identifier: Apache-2.0 */
/* Options that all commands with workers share. */
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

/* Rows of an option table. OPTION(member) is the offset of a member of struct cli_workers. */
#define CLI_WORKERS_PARAMS(OPTION)                                                                 \
	{ .name = "workers",                                                                       \
	  .type = PR_PARAM_INT,                                                                    \
	  .offset = OPTION(config.workers),                                                        \
	  .value = "N",                                                                            \
	  .fallback = "2",                                                                         \
	  .min = 1,                                                                                \
	  .max = 256,                                                                              \
	  .help = "number of worker threads" },                                                    \
		{ .name = "batch-size",                                                            \
		  .type = PR_PARAM_INT,                                                            \
		  .offset = OPTION(config.batch_size),                                             \
		  .value = "N",                                                                    \
		  .fallback = "500",                                                               \
		  .min = 1,                                                                        \
		  .max = 10000,                                                                    \
		  .help = "maximum number of messages per claim" },                                \
		{ .name = "lease",                                                                 \
		  .type = PR_PARAM_DURATION,                                                       \
		  .offset = OPTION(config.lease_ms),                                               \
		  .value = "DUR",                                                                  \
		  .fallback = "30s",                                                               \
		  .min = 30,                                                                       \
		  .max = 86400000,                                                                 \
		  .help = "lease duration; after it expires, another relay may take over" },       \
		{ .name = "poll-interval",                                                         \
		  .type = PR_PARAM_DURATION,                                                       \
		  .offset = OPTION(config.poll_interval_ms),                                       \
		  .value = "DUR",                                                                  \
		  .min = 1,                                                                        \
		  .max = 86400000,                                                                 \
		  .help = "time between two polls for due messages (default: the smaller of 1s "   \
			  "and a third of the lease)" },                                           \
		{ .name = "max-attempts",                                                          \
		  .type = PR_PARAM_INT,                                                            \
		  .offset = OPTION(max_attempts),                                                  \
		  .value = "N",                                                                    \
		  .fallback = "10",                                                                \
		  .min = 1,                                                                        \
		  .max = 1000000,                                                                  \
		  .help = "a message becomes a dead letter after this many failed attempts" },     \
		{ .name = "base-delay",                                                            \
		  .type = PR_PARAM_DURATION,                                                       \
		  .offset = OPTION(config.policy.base_delay_ms),                                   \
		  .value = "DUR",                                                                  \
		  .fallback = "1s",                                                                \
		  .max = 30LL * 86400000,                                                          \
		  .help = "backoff before the second attempt; it doubles with each attempt" },     \
		{ .name = "max-delay",                                                             \
		  .type = PR_PARAM_DURATION,                                                       \
		  .offset = OPTION(config.policy.max_delay_ms),                                    \
		  .value = "DUR",                                                                  \
		  .fallback = "5m",                                                                \
		  .max = 30LL * 86400000,                                                          \
		  .help = "maximum backoff between two attempts" },                                \
		{ .name = "backoff",                                                               \
		  .type = PR_PARAM_CHOICE,                                                         \
		  .offset = OPTION(backoff),                                                       \
		  .value = "KIND",                                                                 \
		  .fallback = "exponential",                                                       \
		  .choices = cli_backoffs,                                                         \
		  .help = "how the backoff grows" },                                               \
		{ .name = "on-dead",                                                               \
		  .type = PR_PARAM_CHOICE,                                                         \
		  .offset = OPTION(on_dead),                                                       \
		  .value = "WHAT",                                                                 \
		  .fallback = "continue",                                                          \
		  .choices = cli_on_dead,                                                          \
		  .help = "effect of a dead message on later messages of its key; block holds "    \
			  "them until the dead message is retried or purged" },                    \
	{                                                                                          \
		.name = "max-error-length", .type = PR_PARAM_INT,                                  \
		.offset = OPTION(max_error_length), .value = "N", .fallback = "2000", .min = 1,    \
		.max = 100000, .help = "maximum number of characters stored of an error message"   \
	}

#define CLI_GRACE_PARAM(OPTION)                                                                    \
	{                                                                                          \
		.name = "shutdown-grace", .type = PR_PARAM_DURATION,                               \
		.offset = OPTION(config.shutdown_grace_ms), .value = "DUR", .fallback = "20s",     \
		.max = 86400000, .help = "time to finish messages in flight after a stop signal"   \
	}

#define CLI_DEAD_RETENTION_PARAM(OPTION)                                                           \
	{                                                                                          \
		.name = "dead-retention", .type = PR_PARAM_PERIOD,                                 \
		.offset = OPTION(config.dead_retention_ms), .value = "DUR", .fallback = "never",   \
		.max = CLI_AGE_MAX_MS, .help = "delete dead messages after this time"              \
	}

#define CLI_INBOX_RETENTION_PARAM(OPTION)                                                          \
	{                                                                                          \
		.name = "inbox-retention", .type = PR_PARAM_PERIOD,                                \
		.offset = OPTION(config.inbox_retention_ms), .value = "DUR", .fallback = "30d",    \
		.min = 1, .max = CLI_AGE_MAX_MS,                                                   \
		.help = "delete completed events from the inbox after this time; a later "         \
			"redelivery counts as a new event"                                         \
	}

/* Sets the members without an option: the policy, the log, the schema. */
void cli_workers_finish(struct cli_workers *workers, const struct cli *cli);

#endif
