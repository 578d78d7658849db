/* SPDX-License-Identifier: Apache-2.0 */
/* An entry of a Redis stream as an event. */
#ifndef PR_CONSUME_REDIS_ENTRY_H
#define PR_CONSUME_REDIS_ENTRY_H

#include "base/buf.h"
#include "consume/source.h"

#include <hiredis.h>

/* An id with its fields. What was deleted while it was pending has none, or is nothing at all. */
bool pr_redis_is_entry(const redisReply *entry);
size_t pr_redis_entry_size(const redisReply *entry);

/* Adds it to the events. POSTROOM_NOMEM is its only failure. */
int pr_redis_entry_read(const redisReply *entry, const char *stream, struct pr_buf *scratch,
			struct pr_events *events);

#endif
