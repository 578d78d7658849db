/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/poison.h"

struct pr_poison_suspect *pr_poison_find(struct pr_poison_suspects *suspects, int64_t seq)
{
	for (size_t i = 0; i < suspects->count; i++) {
		if (suspects->list[i].seq == seq)
			return &suspects->list[i];
	}
	return NULL;
}

struct pr_poison_suspect *pr_poison_add(struct pr_poison_suspects *suspects, int64_t seq)
{
	struct pr_poison_suspect *entry = pr_poison_find(suspects, seq);

	if (entry)
		return entry;
	if (suspects->count < PR_POISON_SUSPECTS_MAX) {
		entry = &suspects->list[suspects->count++];
	} else {
		entry = &suspects->list[suspects->next];
		suspects->next = (suspects->next + 1) % PR_POISON_SUSPECTS_MAX;
	}
	*entry = (struct pr_poison_suspect){ .seq = seq };
	return entry;
}

void pr_poison_remove(struct pr_poison_suspects *suspects, int64_t seq)
{
	struct pr_poison_suspect *entry = pr_poison_find(suspects, seq);

	if (entry)
		*entry = suspects->list[--suspects->count];
}

void pr_poison_clear(struct pr_poison_suspects *suspects)
{
	for (size_t i = 0; i < suspects->count; i++)
		suspects->list[i].guilty = false;
}
