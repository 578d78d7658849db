/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throughput of a relay: deliveries and failures over the last 1, 5 and 15 minutes. All workers
 * share one; a worker adds once for all messages that it settles together. Callers pass the time,
 * on the monotonic clock.
 */
#ifndef PR_RELAY_RATES_H
#define PR_RELAY_RATES_H

#include "relay/histogram.h"

#include <pthread.h>
#include <stdint.h>

enum pr_rates_window { PR_RATES_1M, PR_RATES_5M, PR_RATES_15M, PR_RATES_WINDOWS };

#define PR_RATES_SLOTS 180 /* of five seconds */

struct pr_rates {
	pthread_mutex_t lock;
	int64_t begun_us;
	int64_t lag_us;
	struct pr_rates_slot {
		int64_t number; /* since the clock began; another than expected: its counts are old */
		int64_t delivered, failed;
		uint32_t latency[PR_BUCKETS_MAX]; /* deliveries, by pr_buckets_latency */
	} slots[PR_RATES_SLOTS];
};

struct pr_rates_report {
	struct {
		int64_t delivered, failed;
		double per_second; /* delivered per second, over the part of the window since the start */
		double failure_ratio; /* failed of all that was tried; 0 if nothing was */
	} windows[PR_RATES_WINDOWS];
	int64_t lag_ms; /* from creation to delivery, of the newest delivery; -1: no delivery */
};

void pr_rates_init(struct pr_rates *rates, int64_t now_us);
void pr_rates_release(struct pr_rates *rates);

/* For messages that were never queued. */
#define PR_RATES_NO_LAG INT64_MIN

/* lag_us is that of the last one delivered; it counts if any was. latency may be NULL. */
void pr_rates_add(struct pr_rates *rates, int64_t now_us, int64_t delivered, int64_t failed,
		  int64_t lag_us, const struct pr_tally *latency);
void pr_rates_read(struct pr_rates *rates, int64_t now_us, struct pr_rates_report *ret);

struct pr_rates_sample {
	int64_t begun_us; /* monotonic */
	int64_t delivered, failed;
	double p50_us, p99_us; /* of the latency; -1: nothing is known */
};
/* The slots that are over, oldest first, from the one in which it began; returns how many. */
size_t pr_rates_history(struct pr_rates *rates, int64_t now_us,
			struct pr_rates_sample ret[PR_RATES_SLOTS - 1]);

#endif
