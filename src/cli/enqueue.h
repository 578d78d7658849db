/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of `postroom enqueue`: one message, or a file of messages. */
#ifndef PR_CLI_ENQUEUE_H
#define PR_CLI_ENQUEUE_H

#include "cli/cli.h"

struct enqueue_options {
	const char *ns;
	const char *tenant;
	const char *key;
	const char *dedupe_key;
	const char *idempotency_key;
	const char *identity;
	const char *correlation_id;
	struct pr_param_list headers;
	const char *content_type;
	const char *body_file;
	int64_t delay_ms;
	int64_t priority;
	int64_t max_payload;
	const char *ndjson;
	int64_t batch_size;
	bool atomic;
};

/* Opens the database, or creates it, with a box that accepts --max-payload. */
int enqueue_open(struct cli *cli, const struct enqueue_options *options,
		 struct postroom_store **ret);
int enqueue_bulk(struct cli *cli, const struct enqueue_options *options);

/* OUTBOX_WORKER_DUPLICATE: info, or a warning if the two messages differ. */
void enqueue_log_duplicate(struct cli *cli, const postroom_message *message,
			   const postroom_receipt *receipt);
void enqueue_put_receipt(struct pr_buf *out, const postroom_receipt *receipt);

#endif
