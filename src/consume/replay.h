/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that a broker redelivers events after the inbox has purged them, as when a
 * consumer group was deleted or its offsets have expired.
 *
 * An event is refused if all of this holds:
 * - Its position is one that this handler had passed before purged rows were completed.
 * - It is as old as purged rows, by the broker's clock, or the broker does not say.
 * - The inbox does not know it.
 * It may have been handled, and there is no record of it. An event that the handler has not reached
 * yet is never refused, however old it is.
 */
#ifndef PR_CONSUME_REPLAY_H
#define PR_CONSUME_REPLAY_H

#include "broker/source.h"
#include "store/store.h"

#define PR_POSITION_SIZE 48

struct pr_replay_mark {
	char *source;
	char passed[PR_POSITION_SIZE]; /* the highest position, as far as we know */
	char purged[PR_POSITION_SIZE]; /* the highest that may have been purged; "": none */
	bool unsaved;
};

/* Private to a thread. The pointers that its owner sets must outlive it; the rest is zero. */
struct pr_replay {
	const char *scheme; /* of the source */
	const char *handler;
	int64_t retention_ms; /* of completed rows; < 0: forever */
	struct pr_replay_mark *positions;
	size_t count, capacity;
	struct pr_buf name;
	int64_t purged_us; /* completion time of the newest purged row; 0: none was purged */
	int64_t read_us, saved_us; /* monotonic; 0: never */
};

void pr_replay_release(struct pr_replay *replay);

/*
 * Call it before the events of a read are inserted; incoming are the rows made from them.
 * POSTROOM_SINK: one of them must be refused. Other failures are the database's.
 */
int pr_replay_check(struct pr_replay *replay, struct postroom_store *store,
		    const struct pr_events *events, const struct pr_incoming_event *incoming_events,
		    struct pr_err *err);

/* Call it when the events are in the inbox. */
int pr_replay_pass(struct pr_replay *replay, const struct pr_events *events, struct pr_err *err);

/* True if there are positions to save, and it is time to save them. */
bool pr_replay_is_due(const struct pr_replay *replay);
int pr_replay_save(struct pr_replay *replay, struct postroom_store *store, struct pr_err *err);

#endif
