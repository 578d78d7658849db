/* SPDX-License-Identifier: Apache-2.0 */
#include "core/verdict.h"

#include "base/text.h"

#include <string.h>

int64_t pr_backoff_ms(const struct pr_policy *policy, int32_t attempts, struct pr_random *random)
{
	int64_t delay = policy->base_delay_ms;

	if (delay > policy->max_delay_ms)
		delay = policy->max_delay_ms;
	if (policy->backoff == POSTROOM_BACKOFF_CONSTANT)
		return delay;
	/* Doubling stops at the maximum, so that a high attempt count cannot overflow. */
	for (int32_t i = 1; i < attempts && delay > 0 && delay < policy->max_delay_ms; i++)
		delay = delay > policy->max_delay_ms / 2 ? policy->max_delay_ms : delay * 2;
	return pr_random_between(random, delay / 2, delay);
}

enum pr_disposition pr_verdict_decide(postroom_delivery *item, const struct pr_policy *policy,
				      struct pr_random *random)
{
	switch (item->verdict) {
	case POSTROOM_DELIVERED:
		return PR_DISPOSITION_DONE;
	case POSTROOM_REJECTED:
		return PR_DISPOSITION_DEAD;
	case POSTROOM_FAILED:
		if (item->attempt >= policy->max_attempts)
			return PR_DISPOSITION_DEAD;
		if (item->retry_in_ms < 0)
			item->retry_in_ms = pr_backoff_ms(policy, item->attempt, random);
		return PR_DISPOSITION_RETRY;
	case POSTROOM_UNTRIED:
	case POSTROOM_UNREACHABLE:
		break;
	}
	return PR_DISPOSITION_RELEASE;
}

void pr_verdict_set(postroom_delivery *item, postroom_verdict verdict, struct pr_arena *arena,
		    const struct pr_policy *policy, const char *reason, size_t len)
{
	size_t chars = (size_t)policy->max_error_length;
	size_t room;
	char *text;

	item->verdict = verdict;
	item->reason = NULL;
	if (!reason)
		return;
	/* An ill-formed byte becomes three bytes; a character has at most four. */
	room = (len < chars ? len * 3 : chars * 4) + 1;
	text = pr_arena_alloc(arena, room);
	if (!text)
		return; /* out of memory: the verdict counts, the reason is optional */
	pr_utf8_sanitize(reason, len, chars, text, room);
	item->reason = text;
}
