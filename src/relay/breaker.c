/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. While open, at most one worker at a time is let through, to probe.
 * 2. A probe whose worker never comes back does not keep it open for ever: the
 *    next one is let through when that one's time is over. If it comes back after
 *    all, what it found counts, and when the next one goes is not its concern.
 * 3. A failure is given back at most once.
 * 4. Who was given one back because the sink was away fails on its own account the
 *    next time, if another one got through in between: so poison dies however few
 *    good messages there are. In an outage nobody gets through, and nobody dies.
 */
#include "relay/breaker.h"

#include <stdio.h>
#include <string.h>

void pr_breaker_init(struct pr_breaker *breaker)
{
	*breaker = (struct pr_breaker){ .window = PR_BREAKER_WINDOW_MIN };
	pthread_mutex_init(&breaker->lock, NULL);
}

void pr_breaker_release(struct pr_breaker *breaker)
{
	pthread_mutex_destroy(&breaker->lock);
}

enum pr_breaker_answer pr_breaker_ask(struct pr_breaker *breaker, int64_t now_us,
				      int64_t longest_us, int64_t *ret_probe, int64_t *ret_wait_ms)
{
	enum pr_breaker_answer answer = PR_BREAKER_CLOSED;

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us && now_us >= breaker->probe_at_us) {
		answer = PR_BREAKER_PROBE;
		breaker->probe_at_us = now_us + longest_us;
		breaker->probe = *ret_probe = ++breaker->probes;
	} else if (breaker->open_since_us) {
		int64_t wait_ms = (breaker->probe_at_us - now_us + 999) / 1000;

		answer = PR_BREAKER_OPEN;
		/* The one who probes may be back long before it has to be. */
		*ret_wait_ms = wait_ms < PR_BREAKER_PAUSE_MIN_MS ? wait_ms
								 : PR_BREAKER_PAUSE_MIN_MS;
	}
	pthread_mutex_unlock(&breaker->lock);
	return answer;
}

/* It is back; another one may go then, unless one has been let through in its place. */
static void end_probe(struct pr_breaker *breaker, int64_t probe, int64_t next_us)
{
	if (!probe || probe != breaker->probe)
		return;
	breaker->probe = 0;
	breaker->probe_at_us = next_us;
}

void pr_breaker_leave(struct pr_breaker *breaker, int64_t probe, int64_t now_us)
{
	pthread_mutex_lock(&breaker->lock);
	end_probe(breaker, probe, now_us);
	pthread_mutex_unlock(&breaker->lock);
}

size_t pr_breaker_window(struct pr_breaker *breaker)
{
	size_t window;

	pthread_mutex_lock(&breaker->lock);
	window = breaker->window;
	pthread_mutex_unlock(&breaker->lock);
	return window;
}

/* Its place among those who were spared, or NULL. */
static int64_t *find_spared(struct pr_breaker *breaker, int64_t seq)
{
	for (size_t i = 0; i < PR_BREAKER_SPARED; i++) {
		if (breaker->spared[i] == seq)
			return &breaker->spared[i];
	}
	return NULL;
}

/* The one that comes after the last probe, or the first; SIZE_MAX: there is none of those. */
static size_t choose_among(struct pr_breaker *breaker, const postroom_delivery *items, size_t count,
			   const size_t *before, bool spared, bool *ret_is_last)
{
	size_t first = SIZE_MAX, last = SIZE_MAX, next = SIZE_MAX;

	for (size_t i = 0; i < count; i++) {
		if (before[i] != SIZE_MAX || (!spared && find_spared(breaker, items[i].seq)))
			continue;
		if (first == SIZE_MAX || items[i].seq < items[first].seq)
			first = i;
		if (last == SIZE_MAX || items[i].seq > items[last].seq)
			last = i;
		if (items[i].seq > breaker->probed_seq &&
		    (next == SIZE_MAX || items[i].seq < items[next].seq))
			next = i;
	}
	if (next == SIZE_MAX)
		next = first;
	*ret_is_last = next == last;
	return next;
}

size_t pr_breaker_choose(struct pr_breaker *breaker, const postroom_delivery *items, size_t count,
			 const size_t *before)
{
	size_t next = SIZE_MAX;
	bool is_last = true;

	pthread_mutex_lock(&breaker->lock);
	/* Who has failed since it opened will most likely do so again. */
	if (before)
		next = choose_among(breaker, items, count, before, false, &is_last);
	if (before && next == SIZE_MAX) {
		next = choose_among(breaker, items, count, before, true, &is_last);
		is_last = true;
	}
	if (next == SIZE_MAX)
		next = 0;
	breaker->probed_seq = items[next].seq;
	/* Or else those that would fail anyway could be all that there is to choose from. */
	if (is_last && count >= breaker->window)
		breaker->window *= 2;
	pthread_mutex_unlock(&breaker->lock);
	return next;
}

static void forget_run(struct pr_breaker *breaker)
{
	memset(breaker->run, 0, sizeof(breaker->run));
	breaker->run_length = 0;
}

/*
 * True when it shows an outage. That failure itself is in hand, and not remembered;
 * nor is one that was given back.
 */
static bool lengthen_run(struct pr_breaker *breaker, const postroom_delivery *item)
{
	struct pr_breaker_debt *debt = breaker->run;
	bool several = debt->seq && (debt[1].seq || debt->seq != item->seq);

	breaker->run_length++;
	if (several && breaker->run_length >= PR_BREAKER_RUN)
		return true;
	/* Fewer than PR_BREAKER_RUN, or all of one message: there is a place. */
	while (debt->seq && debt->seq != item->seq)
		debt++;
	debt->seq = item->seq;
	debt->failures += item->verdict == POSTROOM_FAILED;
	return false;
}

static bool owes(struct pr_breaker *breaker, const postroom_delivery *item)
{
	for (size_t i = 0; i < PR_BREAKER_RUN - 1; i++) {
		struct pr_breaker_debt *debt = &breaker->owed[i];

		if (debt->seq == item->seq && debt->failures > 0) {
			debt->failures--;
			return true;
		}
	}
	return false;
}

static void give_back(postroom_delivery *item)
{
	item->verdict = POSTROOM_UNREACHABLE;
}

/* It would be tried again at once: not if the server wants it later. That is owed on. */
static void make_up_for(struct pr_breaker *breaker, postroom_delivery *item)
{
	if (item->retry_in_ms <= 0 && owes(breaker, item))
		give_back(item);
}

/* Those of one outage do not displace each other, or there would be nobody left to blame. */
static void spare(struct pr_breaker *breaker, postroom_delivery *item)
{
	bool written = find_spared(breaker, item->seq) != NULL;

	give_back(item);
	while (!written && breaker->spares < PR_BREAKER_SPARED) {
		size_t at = (breaker->spares_at + breaker->spares++) % PR_BREAKER_SPARED;

		written = breaker->spared[at] >= 0;
		if (written)
			breaker->spared[at] = item->seq;
	}
}

/* Who was spared, and the sink has been there since: the place bears -seq for now. */
static void blame(struct pr_breaker *breaker, const struct pr_breaker_heard *heard)
{
	for (size_t i = 0; i < heard->count; i++) {
		const postroom_delivery *item = &heard->items[i];
		int64_t *place = find_spared(breaker, item->seq);

		if (place && item->verdict == POSTROOM_FAILED)
			*place = -item->seq;
	}
}

static void end_blaming(struct pr_breaker *breaker)
{
	for (size_t i = 0; i < PR_BREAKER_SPARED; i++) {
		if (breaker->spared[i] < 0)
			breaker->spared[i] = 0;
	}
}

/* What the verdicts of a call say about the sink. */
struct evidence {
	bool answered;		       /* it is there */
	const postroom_delivery *away; /* it is not, by this one's verdict */
};

static struct evidence weigh(const struct pr_breaker_heard *heard)
{
	struct evidence evidence = { 0 };

	for (size_t i = 0; i < heard->count; i++) {
		switch (heard->items[i].verdict) {
		case POSTROOM_UNTRIED:
			break;
		case POSTROOM_UNREACHABLE:
			evidence.away = &heard->items[i];
			break;
		case POSTROOM_FAILED:
			evidence.answered |= !heard->server;
			break;
		case POSTROOM_DELIVERED:
		case POSTROOM_REJECTED:
			evidence.answered = true;
			break;
		}
	}
	return evidence;
}

/* A server that only fails: the failure that made an outage of it, or NULL. */
static const postroom_delivery *count_failures(struct pr_breaker *breaker,
					       const struct pr_breaker_heard *heard)
{
	for (size_t i = 0; i < heard->count; i++) {
		postroom_delivery *item = &heard->items[i];

		if (item->verdict != POSTROOM_FAILED || find_spared(breaker, item->seq))
			continue;
		make_up_for(breaker, item);
		if (lengthen_run(breaker, item))
			return item;
	}
	return NULL;
}

/* But for what this very call failed: that is in hand, and not written down yet. */
static void owe_run(struct pr_breaker *breaker, const struct pr_breaker_heard *heard,
		    const postroom_delivery *last)
{
	memcpy(breaker->owed, breaker->run, sizeof(breaker->owed));
	for (const postroom_delivery *item = heard->items; item < last; item++) {
		if (item->verdict == POSTROOM_FAILED)
			owes(breaker, item);
	}
}

/* When to probe: not before the server wants to be asked again, within reason. */
static int64_t next_probe_us(int64_t now_us, const struct pr_breaker_heard *heard)
{
	int64_t longest_us = heard->pause_us;

	for (size_t i = 0; heard->server && i < heard->count; i++) {
		const postroom_delivery *item = &heard->items[i];
		int64_t ms = item->retry_in_ms < PR_BREAKER_LATER_MAX_MS ? item->retry_in_ms
									 : PR_BREAKER_LATER_MAX_MS;

		if (item->verdict == POSTROOM_FAILED && ms * 1000 > longest_us)
			longest_us = ms * 1000;
	}
	return now_us + longest_us;
}

static enum pr_breaker_news trip(struct pr_breaker *breaker, int64_t now_us, int64_t next_us,
				 const char *reason)
{
	snprintf(breaker->reason, sizeof(breaker->reason), "%s",
		 reason ? reason : "no reason given");
	if (breaker->open_since_us)
		return PR_BREAKER_SAME;
	breaker->open_since_us = now_us;
	/* One may still be away from before it was shut. */
	if (!breaker->probe || breaker->probe_at_us < next_us)
		breaker->probe_at_us = next_us;
	forget_run(breaker);
	breaker->spares_at = (breaker->spares_at + breaker->spares) % PR_BREAKER_SPARED;
	breaker->spares = 0;
	return PR_BREAKER_OPENED;
}

static enum pr_breaker_news shut(struct pr_breaker *breaker)
{
	bool was_open = breaker->open_since_us != 0;

	breaker->open_since_us = 0;
	breaker->window = PR_BREAKER_WINDOW_MIN;
	forget_run(breaker);
	return was_open ? PR_BREAKER_SHUT : PR_BREAKER_SAME;
}

/* Whose failures count: the verdicts of the others change. */
static void charge(struct pr_breaker *breaker, const struct pr_breaker_heard *heard, bool was_open,
		   bool answered)
{
	bool is_open = breaker->open_since_us != 0;

	if (!was_open || !is_open)
		blame(breaker, heard);
	for (size_t i = 0; i < heard->count; i++) {
		postroom_delivery *item = &heard->items[i];

		if (item->verdict != POSTROOM_FAILED || find_spared(breaker, -item->seq))
			continue;
		if (is_open && !answered)
			spare(breaker, item);
		else if (!is_open)
			make_up_for(breaker, item);
	}
	end_blaming(breaker);
}

enum pr_breaker_news pr_breaker_heed(struct pr_breaker *breaker, int64_t now_us,
				     const struct pr_breaker_heard *heard)
{
	struct evidence evidence = weigh(heard);
	enum pr_breaker_news news = PR_BREAKER_SAME;
	int64_t next_us = next_probe_us(now_us, heard);
	bool was_open;

	pthread_mutex_lock(&breaker->lock);
	was_open = breaker->open_since_us != 0;
	if (!evidence.away && !evidence.answered && !was_open) {
		evidence.away = count_failures(breaker, heard);
		if (evidence.away)
			owe_run(breaker, heard, evidence.away);
	}
	if (evidence.away)
		news = trip(breaker, now_us, next_us, evidence.away->reason);
	else if (evidence.answered)
		news = shut(breaker);
	end_probe(breaker, heard->probe, next_us);
	if (heard->server)
		charge(breaker, heard, was_open, evidence.answered);
	pthread_mutex_unlock(&breaker->lock);
	return news;
}

bool pr_breaker_is_open(struct pr_breaker *breaker)
{
	bool is_open;

	pthread_mutex_lock(&breaker->lock);
	is_open = breaker->open_since_us != 0;
	pthread_mutex_unlock(&breaker->lock);
	return is_open;
}

int64_t pr_breaker_open_ms(struct pr_breaker *breaker, int64_t now_us, char reason[300])
{
	int64_t ms = 0;

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us) {
		ms = (now_us - breaker->open_since_us) / 1000 + 1;
		snprintf(reason, 300, "%s", breaker->reason);
	}
	pthread_mutex_unlock(&breaker->lock);
	return ms;
}
