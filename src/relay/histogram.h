/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms that workers add to without a lock. A worker first counts a whole batch in a tally
 * of its own, and adds that once. Values are integers: microseconds or messages.
 */
#ifndef PR_RELAY_HISTOGRAM_H
#define PR_RELAY_HISTOGRAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PR_BUCKETS_MAX 17 /* the last one has no upper bound */

struct pr_buckets {
	size_t count;		   /* of bounds */
	const int64_t *bounds;	   /* inclusive */
	const char *const *labels; /* the same as decimal text, in seconds where micro */
	bool micro;		   /* values are microseconds */
};

extern const struct pr_buckets pr_buckets_operation; /* publish and store operations */
extern const struct pr_buckets pr_buckets_latency;   /* enqueue to acknowledgement */
extern const struct pr_buckets pr_buckets_batch;     /* messages */

/* Belongs to one thread. Zeroed, it is ready for use. */
struct pr_tally {
	int64_t counts[PR_BUCKETS_MAX];
	int64_t total; /* observations */
	int64_t sum;
};
void pr_tally_add(struct pr_tally *tally, const struct pr_buckets *buckets, int64_t value);

struct pr_histogram {
	_Atomic int64_t counts[PR_BUCKETS_MAX];
	_Atomic int64_t sum;
};
void pr_histogram_add(struct pr_histogram *histogram, const struct pr_tally *tally);
void pr_histogram_observe(struct pr_histogram *histogram, const struct pr_buckets *buckets,
			  int64_t value);
/* The values added so far; total is the sum of the counts. */
void pr_histogram_read(const struct pr_histogram *histogram, struct pr_tally *ret);

/*
 * An estimate by linear interpolation, like in Prometheus, in the unit of the values. -1:
 * there are no values. Values beyond the last bound count as that bound.
 */
double pr_tally_quantile(const struct pr_tally *tally, const struct pr_buckets *buckets, double q);

/* Counters are only ever added to and read; no other memory depends on them. */
static inline void pr_count(_Atomic int64_t *counter, int64_t n)
{
	if (n != 0)
		atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline int64_t pr_counted(const _Atomic int64_t *counter)
{
	return atomic_load_explicit((_Atomic int64_t *)counter, memory_order_relaxed);
}

#endif
