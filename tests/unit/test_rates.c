/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "relay/rates.h"

#include <math.h>

#define S 1000000LL
#define MINUTE (60 * S)
#define START (1000003 * S + 123) /* no round number, and long after the machine began */

static struct pr_rates rates;

static struct pr_rates_report read_at(int64_t now_us)
{
	struct pr_rates_report report;

	pr_rates_read(&rates, now_us, &report);
	return report;
}

static void check_near(double actual, double expected)
{
	CHECK_MSG(fabs(actual - expected) <= expected * 1e-9, "%f, not %f", actual, expected);
}

TEST(M1_idle_relay_has_no_rates)
{
	struct pr_rates_report report;

	pr_rates_init(&rates, START);
	report = read_at(START);
	for (int window = 0; window < PR_RATES_WINDOWS; window++) {
		CHECK_INT(report.windows[window].delivered, 0);
		check_near(report.windows[window].per_second, 0);
		check_near(report.windows[window].failure_ratio, 0);
	}
	CHECK_INT(report.lag_ms, -1);
	pr_rates_release(&rates);
}

TEST(M1_a_steady_rate_is_the_same_in_every_window)
{
	struct pr_rates_report report;
	int64_t now_us = START;

	pr_rates_init(&rates, START);
	for (int i = 0; i < 20 * 60 * 10; i++) {
		now_us += S / 10;
		pr_rates_add(&rates, now_us, 3, 1, 5 * S, NULL);
	}
	report = read_at(now_us);
	for (int window = 0; window < PR_RATES_WINDOWS; window++) {
		/* The tenth of a second at the edge. */
		CHECK_MSG(fabs(report.windows[window].per_second - 30) < 0.1,
			  "window %d: %f a second", window, report.windows[window].per_second);
		check_near(report.windows[window].failure_ratio, 0.25);
	}
	CHECK_INT(report.lag_ms, 5000);
	pr_rates_release(&rates);
}

TEST(M1_rates_of_a_new_relay_are_measured_over_its_age)
{
	struct pr_rates_report report;

	pr_rates_init(&rates, START);
	pr_rates_add(&rates, START + S / 10, 500, 0, 0, NULL);
	/* Not five thousand a second, and not five hundred in a quarter of an hour. */
	check_near(read_at(START + S / 10).windows[PR_RATES_1M].per_second, 500);
	report = read_at(START + 20 * S);
	for (int window = 0; window < PR_RATES_WINDOWS; window++)
		check_near(report.windows[window].per_second, 25);
	pr_rates_release(&rates);
}

TEST(M1_window_excludes_older_counts)
{
	static const int64_t spans_us[PR_RATES_WINDOWS] = { MINUTE, 5 * MINUTE, 15 * MINUTE };

	pr_rates_init(&rates, START - 60 * MINUTE);
	pr_rates_add(&rates, START, 7, 2, 0, NULL);
	for (int window = 0; window < PR_RATES_WINDOWS; window++) {
		struct pr_rates_report still = read_at(START + spans_us[window] - 6 * S);
		struct pr_rates_report gone = read_at(START + spans_us[window] + S);

		CHECK_INT(still.windows[window].delivered, 7);
		CHECK_INT(still.windows[window].failed, 2);
		CHECK_INT(gone.windows[window].delivered, 0);
		check_near(gone.windows[window].failure_ratio, 0);
	}
	pr_rates_release(&rates);
}

TEST(M1_old_counts_expire_after_idle_hours)
{
	int64_t round_us = (int64_t)PR_RATES_SLOTS * 5 * S; /* the slots are used again */

	pr_rates_init(&rates, START);
	pr_rates_add(&rates, START, 1000, 1000, 0, NULL);
	CHECK_INT(read_at(START + 4 * round_us).windows[PR_RATES_15M].delivered, 0);
	pr_rates_add(&rates, START + 4 * round_us, 1, 0, 0, NULL);
	CHECK_INT(read_at(START + 4 * round_us).windows[PR_RATES_15M].delivered, 1);
	CHECK_INT(read_at(START + 4 * round_us).windows[PR_RATES_15M].failed, 0);
	pr_rates_release(&rates);
}

TEST(M1_the_lag_is_that_of_the_newest_delivery_and_never_negative)
{
	pr_rates_init(&rates, START);
	pr_rates_add(&rates, START, 1, 0, 1500000, NULL);
	pr_rates_add(&rates, START, 0, 3, 99 * S, NULL); /* delivered nothing: no lag */
	pr_rates_add(&rates, START, 1, 0, PR_RATES_NO_LAG, NULL);
	CHECK_INT(read_at(START).lag_ms, 1500);
	pr_rates_add(&rates, START, 1, 0, -S, NULL);
	CHECK_INT(read_at(START).lag_ms, 0);
	pr_rates_release(&rates);
}

static void *add_many(void *unused)
{
	for (int i = 0; i < 20000; i++)
		pr_rates_add(&rates, START, 1, 0, 0, NULL);
	return unused;
}

TEST(M1_workers_count_side_by_side)
{
	pthread_t threads[4];

	pr_rates_init(&rates, START);
	for (int i = 0; i < 4; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	CHECK_INT(read_at(START).windows[PR_RATES_1M].delivered, 4 * 20000);
	pr_rates_release(&rates);
}

TEST(M1_history_has_a_sample_for_each_finished_slot)
{
	struct pr_rates_sample samples[PR_RATES_SLOTS - 1];
	struct pr_tally latency = { 0 };
	int64_t begin_us = START / (5 * S) * (5 * S);

	pr_tally_add(&latency, &pr_buckets_latency, 4000);
	pr_rates_init(&rates, START);
	CHECK_INT(pr_rates_history(&rates, START, samples), 0);
	pr_rates_add(&rates, START, 1, 2, 0, &latency);
	CHECK_INT(pr_rates_history(&rates, begin_us + 5 * S - 1, samples), 0);
	CHECK_INT(pr_rates_history(&rates, begin_us + 15 * S, samples), 3);
	CHECK_INT(samples[0].begun_us, begin_us);
	CHECK_INT(samples[0].delivered, 1);
	CHECK_INT(samples[0].failed, 2);
	CHECK(samples[0].p50_us > 0 && samples[0].p99_us <= 5000);
	CHECK_INT(samples[2].begun_us, begin_us + 10 * S);
	CHECK_INT(samples[2].delivered, 0);
	CHECK(samples[2].p50_us < 0);
	/* It is as long as the memory, and old slots are not taken for new ones. */
	CHECK_INT(pr_rates_history(&rates, begin_us + 15 * MINUTE, samples), PR_RATES_SLOTS - 1);
	CHECK_INT(samples[0].begun_us, begin_us + 5 * S);
	for (size_t i = 0; i < PR_RATES_SLOTS - 1; i++)
		CHECK_INT(samples[i].delivered, 0);
	pr_rates_release(&rates);
}
