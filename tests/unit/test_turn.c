/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "relay/worker.h"

#include <sys/eventfd.h>
#include <unistd.h>

static struct pr_outlet outlet;
static struct pr_worker workers[2];

static void begin(int64_t last_count)
{
	outlet.turn = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	CHECK(outlet.turn >= 0);
	for (size_t i = 0; i < 2; i++)
		workers[i] = (struct pr_worker){ .outlet = &outlet, .batch_limit = 100,
						 .last_count = last_count };
}

TEST(D3_where_there_is_little_one_worker_claims_at_a_time)
{
	begin(24);
	for (int round = 0; round < 3; round++) {
		CHECK(pr_turn_take(&workers[0]));
		CHECK(!pr_turn_take(&workers[1]));
		pr_turn_leave(&workers[0]);
		CHECK(pr_turn_take(&workers[1]));
		pr_turn_leave(&workers[1]);
	}
	close(outlet.turn);
}

TEST(D8_where_there_is_much_all_workers_claim_at_once)
{
	begin(25);
	CHECK(pr_turn_take(&workers[0]));
	CHECK(pr_turn_take(&workers[1]));
	close(outlet.turn);
}

TEST(D5_a_worker_that_claims_and_hangs_keeps_no_other_from_it_for_ever)
{
	int tries = 1;

	begin(0);
	CHECK(pr_turn_take(&workers[0]));
	while (!pr_turn_take(&workers[1]))
		CHECK(++tries < 100);
	CHECK(tries > 1);
	/* That one has no token to leave. */
	pr_turn_leave(&workers[1]);
	CHECK(!pr_turn_take(&workers[1]));
	close(outlet.turn);
}
