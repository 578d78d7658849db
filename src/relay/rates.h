/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a relay has done lately: deliveries and failures over the last 1, 5 and
 * 15 minutes. One for all workers; a worker adds once for all that it settles
 * together. Time is given, on the monotonic clock.
 */
#ifndef PR_RELAY_RATES_H
#define PR_RELAY_RATES_H

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
	} slots[PR_RATES_SLOTS];
};

struct pr_rates_report {
	struct {
		int64_t delivered, failed;
		double per_second; /* delivered, over what there was of this time since the start */
		double failure_ratio; /* failed of all that was tried; 0 if nothing was */
	} windows[PR_RATES_WINDOWS];
	int64_t lag_ms; /* from creation to delivery, of the newest delivery; -1: there was none */
};

void pr_rates_init(struct pr_rates *rates, int64_t now_us);
void pr_rates_release(struct pr_rates *rates);

/* For what was never in a queue. */
#define PR_RATES_NO_LAG INT64_MIN

/* lag_us is that of the last one delivered; it counts if any was. */
void pr_rates_add(struct pr_rates *rates, int64_t now_us, int64_t delivered, int64_t failed,
		  int64_t lag_us);
void pr_rates_read(struct pr_rates *rates, int64_t now_us, struct pr_rates_report *ret);

#endif
