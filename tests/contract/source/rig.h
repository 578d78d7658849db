/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract for every source that is a broker. Each TEST() of a file that includes this runs
 * once for each of FOR_EACH_SOURCE, against a real one; what is read was written by our own sink
 * of it.
 */
#ifndef TESTS_CONTRACT_SOURCE_RIG_H
#define TESTS_CONTRACT_SOURCE_RIG_H

#include "contract/source/source.h"
#include "servers/proxy.h"

#define MIB ((size_t)1024 * 1024)
#define BATCH 40
#define SHORT_MS 200 /* for what is meant to run out of time */
#define LIMIT 1000
#define SEEN_MAX 20000

/* The world of the running test. */
extern const struct source_backend *backend;
extern struct server server;
extern struct proxy proxy;
extern struct rig rig;
extern char name[32]; /* of what this test reads from: a server may have several tests */

void begin_test(const struct source_backend *which);
void end_test(void);

#undef TEST
#define TEST(test_name)                                                                            \
	__attribute__((unused)) static void test_name(void);                                       \
	FOR_EACH_SOURCE(REGISTER_FOR, test_name)                                                   \
	static void test_name(void)

struct pr_source *open_source(int port, const char *group, int64_t lease_ms);
struct pr_source *open_here(void);

/* Calls read() with this time to wait and returns its status. */
int try_read(struct pr_source *source, struct pr_events *events, size_t limit, int64_t wait_ms);
/* Waits until there is something, a second at a time, as intake does. */
void read_some(struct pr_source *source, struct pr_events *events, size_t limit);
void ack(struct pr_source *source, const struct pr_events *events);

/* How often each event "id-N" has come. */
struct seen {
	int times[SEEN_MAX];
	size_t count, different;
};

struct seen *new_seen(void); /* lives in the rig */
void note(struct seen *seen, const struct pr_events *events);
/* Each of the first count has come, and none but those of them. */
void check_each_once(const struct seen *seen, size_t count);

/* Reads, and acknowledges if asked to, until count more have been given. */
void read_all(struct pr_source *source, struct seen *seen, size_t count, bool acknowledge);
/* There is nothing to read, as far as one can see in a while; a connection may take longer. */
void check_nothing_comes(struct pr_source *source);

/* All of them must arrive. */
void publish(postroom_delivery *items, size_t count);
/* The messages id-FIRST … */
void publish_from(size_t first, size_t count);

#endif
