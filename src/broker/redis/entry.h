/* SPDX-License-Identifier: Apache-2.0 */
/* Converts an entry of a Redis stream into an event. */
#ifndef PR_BROKER_REDIS_ENTRY_H
#define PR_BROKER_REDIS_ENTRY_H

#include "base/buf.h"
#include "broker/source.h"

#include <hiredis.h>

/* An id with its fields. An entry that was deleted while pending has no fields, or is nil. */
bool pr_redis_is_entry(const redisReply *entry);
/* True if all elements are entries, or ids of deleted entries, which have no fields. */
bool pr_redis_have_ids(const redisReply *entries);
size_t pr_redis_entry_size(const redisReply *entry);

/* Adds it to the events. The only failure is POSTROOM_NOMEM. */
int pr_redis_entry_read(const redisReply *entry, const char *stream, struct pr_buf *scratch,
			struct pr_events *events);

#endif
