/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. In any period, at most the rate and one second's worth of messages are published. Messages
 *    claimed and not published do not count.
 * 2. At most `concurrency` messages are in flight at the sink, and every worker's share is at
 *    least one message.
 */
#include "relay/limit.h"

/* With a rate, one claim covers a tenth of a second. */
#define PORTIONS 10

static double capacity(const struct pr_limit *limit)
{
	return limit->rate > 1 ? limit->rate : 1;
}

void pr_limit_init(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers,
		   int64_t now_us)
{
	*limit = (struct pr_limit){ .filled_us = now_us };
	pthread_mutex_init(&limit->lock, NULL);
	pr_limit_change(limit, rate, concurrency, workers);
	limit->tokens = capacity(limit);
}

void pr_limit_change(struct pr_limit *limit, double rate, int64_t concurrency, int64_t workers)
{
	pthread_mutex_lock(&limit->lock);
	limit->rate = rate;
	limit->concurrency = concurrency;
	limit->at_once = concurrency > workers ? (concurrency + workers - 1) / workers : 1;
	pthread_mutex_unlock(&limit->lock);
}

void pr_limit_release(struct pr_limit *limit)
{
	pthread_mutex_destroy(&limit->lock);
}

static void fill(struct pr_limit *limit, double tokens)
{
	limit->tokens += tokens;
	if (limit->tokens > capacity(limit))
		limit->tokens = capacity(limit);
}

int32_t pr_limit_take(struct pr_limit *limit, int32_t want, int64_t now_us, int64_t *ret_wait_ms)
{
	int32_t portion = want, taken = 0;

	pthread_mutex_lock(&limit->lock);
	if (limit->rate <= 0) {
		pthread_mutex_unlock(&limit->lock);
		return want;
	}
	if (limit->rate / PORTIONS < portion)
		portion = limit->rate > PORTIONS ? (int32_t)(limit->rate / PORTIONS) : 1;
	fill(limit, (double)(now_us - limit->filled_us) * limit->rate / 1e6);
	limit->filled_us = now_us;
	if (limit->tokens >= portion)
		taken = limit->tokens < want ? (int32_t)limit->tokens : want;
	else
		*ret_wait_ms = (int64_t)((portion - limit->tokens) / limit->rate * 1000) + 1;
	limit->tokens -= taken;
	pthread_mutex_unlock(&limit->lock);
	return taken;
}

void pr_limit_refund(struct pr_limit *limit, int64_t count)
{
	pthread_mutex_lock(&limit->lock);
	if (limit->rate > 0 && count > 0)
		fill(limit, (double)count);
	pthread_mutex_unlock(&limit->lock);
}

bool pr_limit_enter(struct pr_limit *limit, int64_t *ret)
{
	int64_t left;
	bool limited;

	*ret = 0;
	pthread_mutex_lock(&limit->lock);
	limited = limit->concurrency > 0;
	left = limit->concurrency - limit->in_use;
	/* After the limit was lowered, more may be in flight until they finish. */
	if (limited && left > 0)
		*ret = left < limit->at_once ? left : limit->at_once;
	limit->in_use += *ret;
	pthread_mutex_unlock(&limit->lock);
	return !limited || *ret > 0;
}

int64_t pr_limit_widen(struct pr_limit *limit, int64_t want)
{
	int64_t more;

	pthread_mutex_lock(&limit->lock);
	more = limit->concurrency - limit->in_use;
	if (more > want)
		more = want;
	/* Without a limit, just after it was lowered, or if the share is sufficient. */
	if (more < 0)
		more = 0;
	limit->in_use += more;
	pthread_mutex_unlock(&limit->lock);
	return more;
}

void pr_limit_leave(struct pr_limit *limit, int64_t part)
{
	pthread_mutex_lock(&limit->lock);
	limit->in_use -= part;
	pthread_mutex_unlock(&limit->lock);
}

int32_t pr_limit_adapt(int32_t limit, int32_t most, int64_t count, int64_t done)
{
	int64_t next = limit;

	if (done < count)
		next = done;
	else if (count >= limit)
		next = (int64_t)limit * 2;
	if (next < 1)
		return 1;
	return next < most ? (int32_t)next : most;
}
