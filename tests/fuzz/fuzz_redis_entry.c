/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of Redis, as they come from the wire: each element of an array is tried as an entry. */
#include "fuzz_event.h"

#include "broker/redis/entry.h"

static void check_reply(const redisReply *reply)
{
	struct pr_events events = { 0 };
	struct pr_buf scratch = { 0 };

	for (size_t i = 0; i < reply->elements && reply->type == REDIS_REPLY_ARRAY; i++) {
		const redisReply *entry = reply->element[i];

		if (!pr_redis_is_entry(entry))
			continue;
		HOLDS(pr_redis_entry_size(entry) < SIZE_MAX);
		HOLDS(pr_redis_entry_read(entry, "orders", &scratch, &events) >= 0);
	}
	fuzz_check_events(&events);
	pr_events_release(&events);
	pr_buf_release(&scratch);
}

/* hiredis allocates what an array's length says before its elements come: that is not ours to test. */
static bool claims_too_much(const uint8_t *data, size_t size)
{
	size_t digits = 0;

	for (size_t i = 0; i < size; i++) {
		digits = data[i] >= '0' && data[i] <= '9' ? digits + 1 : 0;
		if (digits > 6 && i >= digits && data[i - digits] == '*')
			return true;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;

	HOLDS(reader);
	if (claims_too_much(data, size))
		size = 0;
	if (size > 0 && redisReaderFeed(reader, (const char *)data, size) == REDIS_OK) {
		while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
			check_reply(reply);
			freeReplyObject(reply);
			reply = NULL;
		}
	}
	redisReaderFree(reader);
	return 0;
}
