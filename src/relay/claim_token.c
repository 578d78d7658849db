/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claim token: one worker of a sink pool claims for all.
 *
 * 1. While the backlog is small, one worker claims at a time and the others skip their claim: two
 *    concurrent claims would find half each, at twice the cost.
 * 2. The holder may hang: after REFUSALS_MAX refusals a worker claims anyway.
 */
#include "relay/worker.h"

#include <unistd.h>

/* A batch is small if it fills less than 1/n of its limit. */
#define SMALL_BATCH_PART 4

/* A worker is refused at most this often in a row. */
#define REFUSALS_MAX 20

bool pr_token_take(int fd)
{
	uint64_t token;

	return read(fd, &token, sizeof(token)) == sizeof(token);
}

bool pr_token_release(int fd)
{
	uint64_t token = 1;

	return write(fd, &token, sizeof(token)) == sizeof(token);
}

bool pr_claim_token_take(struct pr_worker *worker)
{
	if (worker->last_count * SMALL_BATCH_PART >= worker->batch_limit)
		return true;
	worker->has_claim_token = pr_token_take(worker->pool->claim_token);
	worker->refusals = worker->has_claim_token ? 0 : worker->refusals + 1;
	if (worker->refusals <= REFUSALS_MAX)
		return worker->has_claim_token;
	worker->refusals = 0;
	return true;
}

void pr_claim_token_release(struct pr_worker *worker)
{
	if (worker->has_claim_token)
		worker->has_claim_token = !pr_token_release(worker->pool->claim_token);
}
