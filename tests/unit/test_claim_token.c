/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "relay/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

static struct pr_sink_pool pool;
static struct pr_worker workers[2];

static void begin(int64_t last_count)
{
	pool.claim_token = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	CHECK(pool.claim_token >= 0);
	for (size_t i = 0; i < 2; i++)
		workers[i] = (struct pr_worker){ .pool = &pool,
						 .batch_limit = 100,
						 .last_count = last_count };
}

TEST(D3_small_backlog_is_claimed_by_one_worker_at_a_time)
{
	begin(24);
	for (int round = 0; round < 3; round++) {
		CHECK(pr_claim_token_take(&workers[0]));
		CHECK(!pr_claim_token_take(&workers[1]));
		pr_claim_token_release(&workers[0]);
		CHECK(pr_claim_token_take(&workers[1]));
		pr_claim_token_release(&workers[1]);
	}
	close(pool.claim_token);
}

TEST(D8_large_backlog_is_claimed_by_all_workers)
{
	begin(25);
	CHECK(pr_claim_token_take(&workers[0]));
	CHECK(pr_claim_token_take(&workers[1]));
	close(pool.claim_token);
}

TEST(D5_hung_holder_of_claim_token_does_not_block_pool)
{
	int tries = 1;

	begin(0);
	CHECK(pr_claim_token_take(&workers[0]));
	while (!pr_claim_token_take(&workers[1]))
		CHECK(++tries < 100);
	CHECK(tries > 1);
	/* That one has no token to leave. */
	pr_claim_token_release(&workers[1]);
	CHECK(!pr_claim_token_take(&workers[1]));
	close(pool.claim_token);
}
