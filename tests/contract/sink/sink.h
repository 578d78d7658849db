/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of sinks: a flight, messages to publish, a list of the received ones. */
#ifndef TESTS_CONTRACT_SINK_H
#define TESTS_CONTRACT_SINK_H

#include "harness.h"

#include "base/buf.h"
#include "base/json.h"
#include "sink/sink.h"

/* Far longer than anything takes; only a hang would meet it. */
#define AMPLE_MS ((int64_t)120 * 1000)

/* The world of the running test. */
struct rig {
	struct pr_arena arena;
	struct pr_policy policy;
	struct pr_stop stop;
	struct pr_log log; /* to the file "log" in the scratch directory */
	struct pr_flight flight;
	struct pr_err err;
	struct pr_sink *sink;
};

void rig_init(struct rig *rig);
void rig_open(struct rig *rig, const char *url); /* must work */
void rig_release(struct rig *rig);		 /* closes the sink too */

/* A message "id-N"; all it points to lives in the rig. key may be NULL. */
postroom_delivery rig_item(struct rig *rig, int number, const char *key, const char *payload);
/* count of them, without keys. */
postroom_delivery *rig_items(struct rig *rig, size_t count);
/* A publish that must not break the sink, with AMPLE_MS to begin. */
void rig_publish(struct rig *rig, postroom_delivery *items, size_t count);
/* Publishes a batch during an outage: all verdicts are UNREACHABLE or UNTRIED, the reason contains says. */
void rig_check_outage(struct rig *rig, const char *says);

/* The whole file; "" if there is none. The buffer is the caller's. */
void read_file(const char *path, struct pr_buf *out);
void write_file(const char *path, const char *text);
bool exists(const char *path);
void wait_until_exists(const char *path);
void wait_a_moment(void); /* between two looks at a condition */

/* A thread's body: the flight of this rig is stopped a little later. */
void *rig_stop_soon(void *rig);

/* A member of a JSON object, raw; data NULL if it has none of that name. */
struct pr_span member(struct pr_span object, const char *name);
/* The next line without its break; false at the end. at begins at 0. */
bool next_line(const struct pr_buf *text, size_t *at, struct pr_span *ret);

size_t open_descriptors(void);
bool has_children(void);
/* Not running: gone, or a zombie that its new parent has not noticed yet. */
bool is_gone(int pid);
void wait_until_gone(int pid);

#endif
