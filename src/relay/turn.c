/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns: what one worker of an outlet does for all.
 *
 * 1. Where there is little, one claims at a time, and who comes meanwhile leaves it to
 *    that one: two at once would find half each, at twice the price.
 * 2. Who claims may hang: nobody leaves it to others for ever.
 */
#include "relay/worker.h"

#include <unistd.h>

/* A batch is little that fills less than one part in so many. */
#define LITTLE 4

/* Nobody is passed over more often than this. */
#define PASSED_OVER_MAX 20

bool pr_token_take(int fd)
{
	uint64_t token;

	return read(fd, &token, sizeof(token)) == sizeof(token);
}

bool pr_token_leave(int fd)
{
	uint64_t token = 1;

	return write(fd, &token, sizeof(token)) == sizeof(token);
}

bool pr_turn_take(struct pr_worker *worker)
{
	if (worker->last_count * LITTLE >= worker->batch_limit)
		return true;
	worker->in_turn = pr_token_take(worker->outlet->turn);
	worker->passed_over = worker->in_turn ? 0 : worker->passed_over + 1;
	if (worker->passed_over <= PASSED_OVER_MAX)
		return worker->in_turn;
	worker->passed_over = 0;
	return true;
}

void pr_turn_leave(struct pr_worker *worker)
{
	if (worker->in_turn)
		worker->in_turn = !pr_token_leave(worker->outlet->turn);
}
