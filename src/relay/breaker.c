/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. While the breaker is open, at most one worker probes at a time.
 * 2. A probe without a result does not keep the breaker open: when its time is over, another
 *    worker may probe. A late result still counts, but does not permit a further probe.
 * 3. A failure is refunded at most once.
 * 4. If a message was refunded because of an outage, and another message was delivered since, its
 *    next failure counts. So a poison message becomes a dead letter even if good messages are
 *    rare. During an outage nothing is delivered, so no message becomes a dead letter.
 * 5. An UNREACHABLE verdict is explained by its message or by the sink, never by both: the message
 *    is charged, or the breaker opens.
 * 6. While the breaker is open because of an outage, no UNREACHABLE verdict is charged.
 */
#include "relay/breaker.h"

#include <stdio.h>
#include <string.h>

/* In doubt one probe is in flight; it takes no longer than one message. */
#define DOUBT_WAIT_MS 5

void pr_breaker_init(struct pr_breaker *breaker)
{
	*breaker = (struct pr_breaker){ .window = PR_BREAKER_WINDOW_MIN };
	pthread_mutex_init(&breaker->lock, NULL);
}

void pr_breaker_release(struct pr_breaker *breaker)
{
	pthread_mutex_destroy(&breaker->lock);
}

enum pr_breaker_permission pr_breaker_check(struct pr_breaker *breaker, int64_t now_us,
					    int64_t longest_us, int64_t *ret_probe,
					    int64_t *ret_wait_ms)
{
	enum pr_breaker_permission answer = PR_BREAKER_CLOSED;

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us && now_us >= breaker->probe_at_us) {
		answer = PR_BREAKER_PROBE;
		breaker->probe_at_us = now_us + longest_us;
		breaker->probe = *ret_probe = ++breaker->probes;
	} else if (breaker->open_since_us) {
		int64_t wait_ms = (breaker->probe_at_us - now_us + 999) / 1000;

		int64_t most_ms = breaker->doubtful ? DOUBT_WAIT_MS : PR_BREAKER_PAUSE_MIN_MS;

		answer = PR_BREAKER_OPEN;
		/* The probe may end long before its time limit. */
		*ret_wait_ms = wait_ms < most_ms ? wait_ms : most_ms;
	}
	pthread_mutex_unlock(&breaker->lock);
	return answer;
}

/* The probe has ended. Permits the next one, unless another probe has replaced it. */
static void end_probe(struct pr_breaker *breaker, int64_t probe, int64_t next_us)
{
	if (!probe || probe != breaker->probe)
		return;
	breaker->probe = 0;
	breaker->probe_at_us = next_us;
}

void pr_breaker_release_probe(struct pr_breaker *breaker, int64_t probe, int64_t now_us)
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

/* Its entry among the refunded messages, or NULL. */
static int64_t *find_refunded(struct pr_breaker *breaker, int64_t seq)
{
	for (size_t i = 0; i < PR_BREAKER_REFUNDED_MAX; i++) {
		if (breaker->refunded[i] == seq)
			return &breaker->refunded[i];
	}
	return NULL;
}

/* True if it has failed since the breaker opened; it will probably fail again. */
static bool has_failed_while_open(struct pr_breaker *breaker, int64_t seq)
{
	return find_refunded(breaker, seq) ||
	       (breaker->doubtful && pr_poison_find(&breaker->suspects, seq));
}

/* Index of the message after the last probe, or of the first one; SIZE_MAX: none qualifies. */
static size_t choose_among(struct pr_breaker *breaker, const postroom_delivery *items, size_t count,
			   const size_t *before, bool refunded, bool *ret_is_last)
{
	size_t first = SIZE_MAX, last = SIZE_MAX, next = SIZE_MAX;

	for (size_t i = 0; i < count; i++) {
		if (before[i] != SIZE_MAX ||
		    (!refunded && has_failed_while_open(breaker, items[i].seq)))
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
	if (before)
		next = choose_among(breaker, items, count, before, false, &is_last);
	if (before && next == SIZE_MAX) {
		next = choose_among(breaker, items, count, before, true, &is_last);
		is_last = true;
	}
	if (next == SIZE_MAX)
		next = 0;
	breaker->probed_seq = items[next].seq;
	/* Otherwise the window might contain only poison messages. */
	if (is_last && count >= breaker->window)
		breaker->window *= 2;
	pthread_mutex_unlock(&breaker->lock);
	return next;
}

static void clear_run(struct pr_breaker *breaker)
{
	memset(breaker->run, 0, sizeof(breaker->run));
	breaker->run_length = 0;
}

/*
 * True if the run of failures is an outage. The failure that completes it is not recorded,
 * because it is not settled yet; nor is a refunded one.
 */
static bool extend_run(struct pr_breaker *breaker, const postroom_delivery *item)
{
	struct pr_breaker_failures *refund = breaker->run;
	bool several = refund->seq && (refund[1].seq || refund->seq != item->seq);

	breaker->run_length++;
	if (several && breaker->run_length >= PR_BREAKER_RUN)
		return true;
	/* Fewer than PR_BREAKER_RUN, or all of one message: there is a free entry. */
	while (refund->seq && refund->seq != item->seq)
		refund++;
	refund->seq = item->seq;
	refund->failures += item->verdict == POSTROOM_FAILED;
	return false;
}

static bool has_refund_due(struct pr_breaker *breaker, const postroom_delivery *item)
{
	for (size_t i = 0; i < PR_BREAKER_RUN - 1; i++) {
		struct pr_breaker_failures *refund = &breaker->to_refund[i];

		if (refund->seq == item->seq && refund->failures > 0) {
			refund->failures--;
			return true;
		}
	}
	return false;
}

static void refund_attempt(postroom_delivery *item)
{
	item->verdict = POSTROOM_UNREACHABLE;
}

/* A refund means an immediate retry. If the server requested a later one, the refund waits. */
static void refund_next_failure(struct pr_breaker *breaker, postroom_delivery *item)
{
	if (item->retry_in_ms <= 0 && has_refund_due(breaker, item))
		refund_attempt(item);
}

/* Entries of one outage do not replace each other, so that later failures can still be charged. */
static void remember_refund(struct pr_breaker *breaker, postroom_delivery *item)
{
	bool written = find_refunded(breaker, item->seq) != NULL;

	refund_attempt(item);
	while (!written && breaker->refunded_count < PR_BREAKER_REFUNDED_MAX) {
		size_t at = (breaker->refunded_at + breaker->refunded_count++) %
			    PR_BREAKER_REFUNDED_MAX;

		written = breaker->refunded[at] >= 0;
		if (written)
			breaker->refunded[at] = item->seq;
	}
}

/* A refunded message failed although the sink was available since: its entry becomes -seq. */
static void expect_own_failure(struct pr_breaker *breaker, const struct pr_breaker_results *results)
{
	for (size_t i = 0; i < results->count; i++) {
		const postroom_delivery *item = &results->items[i];
		int64_t *entry = find_refunded(breaker, item->seq);

		if (entry && item->verdict == POSTROOM_FAILED && !item->charged)
			*entry = -item->seq;
	}
}

static void charge_own_failures(struct pr_breaker *breaker)
{
	for (size_t i = 0; i < PR_BREAKER_REFUNDED_MAX; i++) {
		if (breaker->refunded[i] < 0)
			breaker->refunded[i] = 0;
	}
}

/* Conclusions about the sink from the verdicts of a call. */
struct evidence {
	bool answered;			      /* the sink is available */
	const postroom_delivery *unexplained; /* verdict that only an outage explains */
	bool lively;			      /* something was delivered since the call began */
	bool single;			      /* exactly one message could not reach the sink */
};

static struct evidence weigh_verdicts(const struct pr_breaker *breaker,
				      const struct pr_breaker_results *results)
{
	int64_t delivered_us = atomic_load(&breaker->proof.delivered_us);
	struct evidence evidence = { .lively = delivered_us > 0 &&
					       delivered_us >= results->began_us };
	size_t unreachable = 0;

	for (size_t i = 0; i < results->count; i++) {
		switch (results->items[i].verdict) {
		case POSTROOM_UNTRIED:
			break;
		case POSTROOM_UNREACHABLE:
			unreachable++;
			break;
		case POSTROOM_FAILED:
			evidence.answered |= !results->server;
			break;
		case POSTROOM_DELIVERED:
		case POSTROOM_REJECTED:
			evidence.answered = true;
			break;
		}
	}
	evidence.single = unreachable == 1;
	return evidence;
}

/* When it first failed, as far as known: later deliveries are evidence against the message. */
static int64_t first_failed_us(const postroom_delivery *item,
			       const struct pr_poison_suspect *suspect,
			       const struct pr_breaker_results *results)
{
	if (suspect)
		return suspect->failed_us;
	if (item->together && item->lost_us)
		return item->lost_us;
	return item->judged_us > results->began_us ? item->judged_us : results->began_us;
}

/* True if an UNREACHABLE verdict is about the message, not about the sink. */
static bool is_explained(struct pr_breaker *breaker, const struct pr_breaker_results *results,
			 const struct evidence *evidence, const postroom_delivery *item)
{
	bool is_open = breaker->open_since_us != 0;
	const struct pr_poison_suspect *suspect;
	int64_t failed_us;

	if (item->verdict != POSTROOM_UNREACHABLE || (is_open && !breaker->doubtful))
		return false;
	/* Several failed together: the cause is unknown. */
	if (item->together && !evidence->single)
		return false;
	if (evidence->lively && (evidence->single || item->by_name))
		return true;
	suspect = pr_poison_find(&breaker->suspects, item->seq);
	if (suspect && suspect->guilty && !is_open)
		return true;
	/* Deliveries before the doubt began are no evidence. */
	failed_us = first_failed_us(item, suspect, results);
	if (failed_us < breaker->open_since_us)
		failed_us = breaker->open_since_us;
	return atomic_load(&breaker->proof.begun_us) > failed_us;
}

/* The last verdict that only the sink explains, or NULL. */
static const postroom_delivery *find_unexplained(struct pr_breaker *breaker,
						 const struct pr_breaker_results *results,
						 const struct evidence *evidence)
{
	for (size_t i = results->count; i-- > 0;) {
		const postroom_delivery *item = &results->items[i];

		if (item->verdict == POSTROOM_UNREACHABLE &&
		    !is_explained(breaker, results, evidence, item))
			return item;
	}
	return NULL;
}

/* Verdicts that are about the message count as failures. */
static void charge_explained(struct pr_breaker *breaker, const struct pr_breaker_results *results,
			     const struct evidence *evidence)
{
	for (size_t i = 0; i < results->count; i++) {
		postroom_delivery *item = &results->items[i];

		if (!is_explained(breaker, results, evidence, item))
			continue;
		item->verdict = POSTROOM_FAILED;
		item->charged = true;
	}
}

static void remember_poison_suspects(struct pr_breaker *breaker,
				     const struct pr_breaker_results *results)
{
	struct pr_poison_suspects *suspects = &breaker->suspects;

	for (size_t i = 0; i < results->count; i++) {
		const postroom_delivery *item = &results->items[i];
		struct pr_poison_suspect *suspect;

		if (item->verdict == POSTROOM_DELIVERED || item->verdict == POSTROOM_REJECTED)
			pr_poison_remove(suspects, item->seq);
		if (item->verdict != POSTROOM_UNREACHABLE && !item->charged &&
		    (item->verdict != POSTROOM_FAILED || !item->lost_us))
			continue;
		suspect = pr_poison_add(suspects, item->seq);
		suspect->guilty = item->charged;
		/* It first failed together with others, and it also fails alone. */
		suspect->alone |= item->lost_us != 0 || item->together;
		suspect->failed_us = item->judged_us > results->began_us ? item->judged_us
									 : results->began_us;
	}
}

/* For a server that only fails: the failure that completes an outage, or NULL. */
static const postroom_delivery *count_failures(struct pr_breaker *breaker,
					       const struct pr_breaker_results *results)
{
	for (size_t i = 0; i < results->count; i++) {
		postroom_delivery *item = &results->items[i];

		if (item->verdict != POSTROOM_FAILED || item->charged ||
		    find_refunded(breaker, item->seq))
			continue;
		refund_next_failure(breaker, item);
		if (extend_run(breaker, item))
			return item;
	}
	return NULL;
}

/* Except for the failures of this call, which are not settled yet. */
static void note_refunds(struct pr_breaker *breaker, const struct pr_breaker_results *results,
			 const postroom_delivery *last)
{
	memcpy(breaker->to_refund, breaker->run, sizeof(breaker->to_refund));
	for (const postroom_delivery *item = results->items; item < last; item++) {
		if (item->verdict == POSTROOM_FAILED && !item->charged)
			has_refund_due(breaker, item);
	}
}

/* When to probe: not before the Retry-After of the server, up to a limit. */
static int64_t next_probe_us(int64_t now_us, const struct pr_breaker_results *results)
{
	int64_t longest_us = results->pause_us;

	for (size_t i = 0; results->server && i < results->count; i++) {
		const postroom_delivery *item = &results->items[i];
		int64_t ms = item->retry_in_ms < PR_BREAKER_LATER_MAX_MS ? item->retry_in_ms
									 : PR_BREAKER_LATER_MAX_MS;

		if (item->verdict == POSTROOM_FAILED && ms * 1000 > longest_us)
			longest_us = ms * 1000;
	}
	return now_us + longest_us;
}

static void set_open(struct pr_breaker *breaker, int64_t now_us, int64_t next_us)
{
	breaker->open_since_us = now_us;
	/* An earlier probe may still be in flight. */
	if (!breaker->probe || breaker->probe_at_us < next_us)
		breaker->probe_at_us = next_us;
	clear_run(breaker);
	breaker->refunded_at = (breaker->refunded_at + breaker->refunded_count) %
			       PR_BREAKER_REFUNDED_MAX;
	breaker->refunded_count = 0;
}

static enum pr_breaker_change open_for_outage(struct pr_breaker *breaker, int64_t now_us,
					      int64_t next_us, const char *reason)
{
	snprintf(breaker->reason, sizeof(breaker->reason), "%s",
		 reason ? reason : "no reason given");
	if (breaker->open_since_us && !breaker->doubtful)
		return PR_BREAKER_UNCHANGED;
	breaker->doubtful = false;
	set_open(breaker, now_us, next_us);
	pr_poison_clear(&breaker->suspects);
	return PR_BREAKER_OPENED;
}

/* The sink has just delivered something and is unreachable now: one probe decides, immediately. */
static void open_in_doubt(struct pr_breaker *breaker, int64_t now_us)
{
	if (breaker->open_since_us)
		return;
	breaker->doubtful = true;
	set_open(breaker, now_us, now_us);
	/* The next claim returns the failed messages first: make room for another one among them. */
	if (breaker->window < breaker->suspects.count + PR_BREAKER_WINDOW_MIN)
		breaker->window = breaker->suspects.count + PR_BREAKER_WINDOW_MIN;
}

static enum pr_breaker_change set_closed(struct pr_breaker *breaker)
{
	bool was_outage = breaker->open_since_us != 0 && !breaker->doubtful;

	breaker->open_since_us = 0;
	breaker->doubtful = false;
	breaker->window = PR_BREAKER_WINDOW_MIN;
	clear_run(breaker);
	return was_outage ? PR_BREAKER_RECOVERED : PR_BREAKER_UNCHANGED;
}

/* Decides which failures count, and changes the verdicts of the others. */
static void charge(struct pr_breaker *breaker, const struct pr_breaker_results *results,
		   bool was_open, bool answered)
{
	bool is_open = breaker->open_since_us != 0;

	if (!was_open || !is_open)
		expect_own_failure(breaker, results);
	for (size_t i = 0; i < results->count; i++) {
		postroom_delivery *item = &results->items[i];

		if (item->verdict != POSTROOM_FAILED || item->charged ||
		    find_refunded(breaker, -item->seq))
			continue;
		if (is_open && !answered)
			remember_refund(breaker, item);
		else if (!is_open)
			refund_next_failure(breaker, item);
	}
	charge_own_failures(breaker);
}

/* True if the probe that tests the doubt has failed. */
static bool is_doubt_tested(const struct pr_breaker *breaker,
			    const struct pr_breaker_results *results)
{
	return breaker->doubtful && results->probe && results->count > 0 &&
	       results->items[0].verdict == POSTROOM_FAILED;
}

/* Opens, closes or leaves the breaker. evidence->unexplained is such a verdict, or NULL. */
static enum pr_breaker_change update_state(struct pr_breaker *breaker, int64_t now_us,
					   int64_t next_us,
					   const struct pr_breaker_results *results,
					   struct evidence *evidence)
{
	bool is_outage = breaker->open_since_us && !breaker->doubtful;

	if (evidence->unexplained && evidence->lively && !is_outage) {
		open_in_doubt(breaker, now_us);
		return PR_BREAKER_UNCHANGED;
	}
	if (!evidence->unexplained && !evidence->answered && !breaker->open_since_us) {
		evidence->unexplained = count_failures(breaker, results);
		if (evidence->unexplained)
			note_refunds(breaker, results, evidence->unexplained);
	}
	if (!evidence->unexplained && !evidence->answered && is_doubt_tested(breaker, results)) {
		/* It is charged because another message was delivered since the doubt began. */
		if (results->items[0].charged)
			return set_closed(breaker);
		evidence->unexplained = results->items;
	}
	if (evidence->unexplained)
		return open_for_outage(breaker, now_us, next_us, evidence->unexplained->reason);
	return evidence->answered ? set_closed(breaker) : PR_BREAKER_UNCHANGED;
}

enum pr_breaker_change pr_breaker_record(struct pr_breaker *breaker, int64_t now_us,
					 const struct pr_breaker_results *results)
{
	struct evidence evidence = weigh_verdicts(breaker, results);
	enum pr_breaker_change news;
	int64_t next_us = next_probe_us(now_us, results);
	bool was_open;

	pthread_mutex_lock(&breaker->lock);
	was_open = breaker->open_since_us != 0;
	evidence.unexplained = find_unexplained(breaker, results, &evidence);
	/* During an outage no verdict is about a message. */
	if (!evidence.unexplained || evidence.lively)
		charge_explained(breaker, results, &evidence);
	remember_poison_suspects(breaker, results);
	news = update_state(breaker, now_us, next_us, results, &evidence);
	end_probe(breaker, results->probe, next_us);
	if (results->server)
		charge(breaker, results, was_open, evidence.answered);
	pthread_mutex_unlock(&breaker->lock);
	return news;
}

bool pr_breaker_mark_alone(struct pr_breaker *breaker, postroom_delivery *items, size_t count,
			   int aside)
{
	bool any = false;

	pthread_mutex_lock(&breaker->lock);
	for (size_t i = 0; i < count && breaker->suspects.count > 0; i++) {
		const struct pr_poison_suspect *suspect = pr_poison_find(&breaker->suspects,
									 items[i].seq);

		if (!suspect || !suspect->alone)
			continue;
		items[i].aside = aside;
		any = true;
	}
	pthread_mutex_unlock(&breaker->lock);
	return any;
}

bool pr_breaker_is_open(struct pr_breaker *breaker)
{
	bool is_open;

	pthread_mutex_lock(&breaker->lock);
	is_open = breaker->open_since_us != 0;
	pthread_mutex_unlock(&breaker->lock);
	return is_open;
}

bool pr_breaker_is_probing(struct pr_breaker *breaker)
{
	bool is_probing;

	pthread_mutex_lock(&breaker->lock);
	is_probing = breaker->open_since_us != 0 && breaker->probe != 0;
	pthread_mutex_unlock(&breaker->lock);
	return is_probing;
}

int64_t pr_breaker_open_ms(struct pr_breaker *breaker, int64_t now_us, char reason[300])
{
	int64_t ms = 0;

	pthread_mutex_lock(&breaker->lock);
	if (breaker->open_since_us && !breaker->doubtful) {
		ms = (now_us - breaker->open_since_us) / 1000 + 1;
		snprintf(reason, 300, "%s", breaker->reason);
	}
	pthread_mutex_unlock(&breaker->lock);
	return ms;
}
