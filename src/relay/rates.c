/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A slot is a fixed period of the clock, found by its number: windows advance without any call,
 *    and idle hours cost nothing.
 * 2. A window is its last whole slots and the current one, and is divided by exactly that time.
 */
#include "relay/rates.h"

#define SLOT_US 5000000LL

static const int64_t window_slots[PR_RATES_WINDOWS] = {
	[PR_RATES_1M] = 12,
	[PR_RATES_5M] = 60,
	[PR_RATES_15M] = PR_RATES_SLOTS,
};

void pr_rates_init(struct pr_rates *rates, int64_t now_us)
{
	*rates = (struct pr_rates){ .begun_us = now_us, .lag_us = -1 };
	pthread_mutex_init(&rates->lock, NULL);
}

void pr_rates_release(struct pr_rates *rates)
{
	pthread_mutex_destroy(&rates->lock);
}

void pr_rates_add(struct pr_rates *rates, int64_t now_us, int64_t delivered, int64_t failed,
		  int64_t lag_us, const struct pr_tally *latency)
{
	int64_t number = now_us / SLOT_US;
	struct pr_rates_slot *slot = &rates->slots[number % PR_RATES_SLOTS];

	pthread_mutex_lock(&rates->lock);
	if (slot->number != number)
		*slot = (struct pr_rates_slot){ .number = number };
	slot->delivered += delivered;
	slot->failed += failed;
	for (size_t i = 0; latency && i < PR_BUCKETS_MAX; i++)
		slot->latency[i] += (uint32_t)latency->counts[i];
	if (delivered > 0 && lag_us != PR_RATES_NO_LAG)
		rates->lag_us = lag_us > 0 ? lag_us : 0; /* two clocks may disagree */
	pthread_mutex_unlock(&rates->lock);
}

static double divide(int64_t part, int64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void read_window(const struct pr_rates *rates, int64_t now_us, enum pr_rates_window window,
			struct pr_rates_report *ret)
{
	int64_t last = now_us / SLOT_US, first = last - window_slots[window] + 1;
	int64_t since_us = first * SLOT_US, delivered = 0, failed = 0;

	for (size_t i = 0; i < PR_RATES_SLOTS; i++) {
		const struct pr_rates_slot *slot = &rates->slots[i];

		if (slot->number < first || slot->number > last)
			continue;
		delivered += slot->delivered;
		failed += slot->failed;
	}
	if (since_us < rates->begun_us)
		since_us = rates->begun_us;
	/* Ignores the first moments of a relay. */
	if (since_us > now_us - 1000000)
		since_us = now_us - 1000000;
	ret->windows[window].delivered = delivered;
	ret->windows[window].failed = failed;
	ret->windows[window].per_second = divide(delivered * 1000000, now_us - since_us);
	ret->windows[window].failure_ratio = divide(failed, delivered + failed);
}

void pr_rates_read(struct pr_rates *rates, int64_t now_us, struct pr_rates_report *ret)
{
	pthread_mutex_lock(&rates->lock);
	for (int window = 0; window < PR_RATES_WINDOWS; window++)
		read_window(rates, now_us, (enum pr_rates_window)window, ret);
	ret->lag_ms = rates->lag_us < 0 ? -1 : rates->lag_us / 1000;
	pthread_mutex_unlock(&rates->lock);
}

static struct pr_rates_sample sample(const struct pr_rates *rates, int64_t number)
{
	const struct pr_rates_slot *slot = &rates->slots[number % PR_RATES_SLOTS];
	struct pr_rates_sample ret = { .begun_us = number * SLOT_US, .p50_us = -1, .p99_us = -1 };
	struct pr_tally latency = { 0 };

	if (slot->number != number)
		return ret;
	for (size_t i = 0; i < PR_BUCKETS_MAX; i++) {
		latency.counts[i] = slot->latency[i];
		latency.total += slot->latency[i];
	}
	ret.delivered = slot->delivered;
	ret.failed = slot->failed;
	ret.p50_us = pr_tally_quantile(&latency, &pr_buckets_latency, 0.5);
	ret.p99_us = pr_tally_quantile(&latency, &pr_buckets_latency, 0.99);
	return ret;
}

size_t pr_rates_history(struct pr_rates *rates, int64_t now_us,
			struct pr_rates_sample ret[PR_RATES_SLOTS - 1])
{
	int64_t end = now_us / SLOT_US, number = end - (PR_RATES_SLOTS - 1);
	size_t count = 0;

	if (number < rates->begun_us / SLOT_US)
		number = rates->begun_us / SLOT_US;
	pthread_mutex_lock(&rates->lock);
	for (; number < end; number++)
		ret[count++] = sample(rates, number);
	pthread_mutex_unlock(&rates->lock);
	return count;
}
