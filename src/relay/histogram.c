/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/histogram.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MS 1000LL
#define S (1000 * MS)

static const int64_t operation_bounds[] = { 1 * MS,    2500,	 5 * MS,   10 * MS,  25 * MS,
					    50 * MS,   100 * MS, 250 * MS, 500 * MS, 1 * S,
					    2500 * MS, 5 * S,	 10 * S,   30 * S };
static const char *const operation_labels[] = { "0.001", "0.0025", "0.005", "0.01", "0.025",
						"0.05",	 "0.1",	   "0.25",  "0.5",  "1",
						"2.5",	 "5",	   "10",    "30" };
static const int64_t latency_bounds[] = { 5 * MS,   10 * MS, 25 * MS,	50 * MS, 100 * MS, 250 * MS,
					  500 * MS, 1 * S,   2500 * MS, 5 * S,	 10 * S,   30 * S,
					  60 * S,   300 * S, 900 * S,	3600 * S };
static const char *const latency_labels[] = { "0.005", "0.01", "0.025", "0.05", "0.1", "0.25",
					      "0.5",   "1",    "2.5",	"5",	"10",  "30",
					      "60",    "300",  "900",	"3600" };
static const int64_t batch_bounds[] = { 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000 };
static const char *const batch_labels[] = { "1",  "2",	 "5",	"10",  "25",
					    "50", "100", "250", "500", "1000" };

const struct pr_buckets pr_buckets_operation = { COUNT(operation_bounds), operation_bounds,
						 operation_labels, true };
const struct pr_buckets pr_buckets_latency = { COUNT(latency_bounds), latency_bounds,
					       latency_labels, true };
const struct pr_buckets pr_buckets_batch = { COUNT(batch_bounds), batch_bounds, batch_labels,
					     false };

static size_t find_bucket(const struct pr_buckets *buckets, int64_t value)
{
	size_t at = 0;

	while (at < buckets->count && value > buckets->bounds[at])
		at++;
	return at;
}

void pr_tally_add(struct pr_tally *tally, const struct pr_buckets *buckets, int64_t value)
{
	tally->counts[find_bucket(buckets, value)]++;
	tally->total++;
	tally->sum += value;
}

void pr_histogram_add(struct pr_histogram *histogram, const struct pr_tally *tally)
{
	if (tally->total == 0)
		return;
	for (size_t i = 0; i < PR_BUCKETS_MAX; i++)
		pr_count(&histogram->counts[i], tally->counts[i]);
	pr_count(&histogram->sum, tally->sum);
}

void pr_histogram_observe(struct pr_histogram *histogram, const struct pr_buckets *buckets,
			  int64_t value)
{
	pr_count(&histogram->counts[find_bucket(buckets, value)], 1);
	pr_count(&histogram->sum, value);
}

void pr_histogram_read(const struct pr_histogram *histogram, struct pr_tally *ret)
{
	*ret = (struct pr_tally){ .sum = pr_counted(&histogram->sum) };
	for (size_t i = 0; i < PR_BUCKETS_MAX; i++) {
		ret->counts[i] = pr_counted(&histogram->counts[i]);
		ret->total += ret->counts[i];
	}
}

double pr_tally_quantile(const struct pr_tally *tally, const struct pr_buckets *buckets, double q)
{
	double rank = q * (double)tally->total, below = 0;

	if (tally->total == 0)
		return -1;
	for (size_t i = 0; i < buckets->count; i++) {
		double inside = (double)tally->counts[i];
		double from = i > 0 ? (double)buckets->bounds[i - 1] : 0;
		double to = (double)buckets->bounds[i];

		if (inside > 0 && below + inside >= rank)
			return from + (to - from) * (rank - below) / inside;
		below += inside;
	}
	return (double)buckets->bounds[buckets->count - 1];
}
