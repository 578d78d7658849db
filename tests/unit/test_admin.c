/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "admin/server.h"

TEST(P1_figures_of_few_rows_are_kept_for_a_second_however_long_they_took)
{
	CHECK_INT(pr_status_keep_us(1000, 5), 1000000);
	CHECK_INT(pr_status_keep_us(400000, 5), 1000000);
}

TEST(P2_figures_of_many_rows_use_a_small_part_of_the_time)
{
	CHECK_INT(pr_status_keep_us(1000, 100000), 1000000);
	CHECK_INT(pr_status_keep_us(20000, 100000), 10000000);
	CHECK_INT(pr_status_keep_us(400000, 100000), 30000000);
}
