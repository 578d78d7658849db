/* SPDX-License-Identifier: Apache-2.0 */
/* Promises of every broker source when things go wrong. */
#include "contract/source/rig.h"

#include "base/time.h"

#include <signal.h>

/* Ten times as long as is promised is a broken promise. */
static int read_shortly(struct pr_source *source, struct pr_events *events)
{
	int64_t begun_us = pr_mono_us();
	int status;

	rig.flight.timeout_ms = SHORT_MS;
	status = try_read(source, events, LIMIT, SHORT_MS);
	rig.flight.timeout_ms = AMPLE_MS;
	CHECK(pr_mono_us() - begun_us < 10 * 2 * SHORT_MS * 1000);
	return status;
}

/* As intake does: an outage is waited out with the same instance. */
static void read_all_in_the_end(struct pr_source *source, struct seen *seen, size_t count)
{
	struct pr_events events = { 0 };

	while (seen->different < count) {
		if (try_read(source, &events, LIMIT, SHORT_MS) < 0) {
			CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
			wait_a_moment();
			continue;
		}
		note(seen, &events);
		if (events.count > 0)
			ack(source, &events);
	}
	pr_events_release(&events);
}

/* From a server that answers nothing: only what it has sent ahead. */
static void read_ahead(struct pr_source *source, struct seen *seen)
{
	struct pr_events events = { 0 };

	read_shortly(source, &events);
	CHECK(backend->pushes || events.count == 0);
	/* A source whose acknowledgements are answered cannot send them now: the events are redelivered. */
	if (events.count > 0 && !backend->insists) {
		note(seen, &events);
		ack(source, &events);
	}
	pr_events_release(&events);
}

TEST(D5_relay_reconnects_after_the_server_was_killed)
{
	struct pr_source *source = open_here();
	struct pr_events events = { 0 };
	struct seen *seen = new_seen();

	publish_from(0, BATCH);
	read_all(source, seen, BATCH / 2, true);
	server_kill(&server);
	/* Events that were sent ahead can no longer be acknowledged, and are redelivered. */
	while (read_shortly(source, &events) == POSTROOM_OK)
		CHECK(backend->pushes && events.count > 0);
	CHECK_INT(rig.err.status, POSTROOM_UNAVAILABLE);
	CHECK_MSG(strlen(rig.err.text) > 20, "%s", rig.err.text);
	backend->server->start(&server);
	read_all_in_the_end(source, seen, BATCH);
	if (!backend->repeats)
		check_each_once(seen, BATCH);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(refused_connection_is_an_outage)
{
	struct pr_source *source = open_source(server_free_port(), "readers", AMPLE_MS);
	struct pr_events events = { 0 };

	CHECK_INT(read_shortly(source, &events), POSTROOM_UNAVAILABLE);
	CHECK_CONTAINS(rig.err.text, SERVER_HOST);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(deadline_is_respected_if_the_server_hangs)
{
	struct pr_source *source = open_here(), *late = open_here();
	struct pr_events events = { 0 };
	struct seen *seen = new_seen();

	publish_from(0, BATCH);
	read_all(source, seen, 1, true);
	server_stop(&server);
	read_ahead(source, seen);
	read_shortly(late, &events);
	CHECK_INT(events.count, 0);
	CHECK(kill(server.pid, SIGCONT) == 0);
	pr_source_close(late);
	read_all_in_the_end(source, seen, BATCH);
	check_each_once(seen, BATCH);
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(slow_replies_byte_by_byte_are_parsed)
{
	static const enum proxy_mode modes[] = { PROXY_BYTES, PROXY_DELAY };
	struct pr_source *source = open_source(proxy.port, "readers", AMPLE_MS);
	struct seen *seen = new_seen();

	proxy.mode = PROXY_BYTES;
	/* nats.c may miss the end of a greeting that comes in pieces: it is begun anew then. */
	rig.flight.timeout_ms = 10 * SHORT_MS;
	check_nothing_comes(source);
	rig.flight.timeout_ms = AMPLE_MS;
	for (size_t i = 0; i < 2; i++) {
		proxy.mode = modes[i];
		publish_from(i * BATCH, BATCH);
		read_all(source, seen, BATCH, true);
	}
	check_each_once(seen, 2 * BATCH);
	pr_source_close(source);
}

/* Acknowledgements that were lost with the connection: their events come a second time. */
static void check_none_came_thrice(const struct seen *seen, size_t count)
{
	for (size_t i = 0; i < count; i++)
		CHECK_MSG(seen->times[i] == 1 || seen->times[i] == 2, "id-%zu has come %d times", i,
			  seen->times[i]);
}

TEST(N2_events_of_a_lost_reply_are_redelivered)
{
	struct pr_source *source = open_source(proxy.port, "readers", backend->shortest_lease_ms);
	struct seen *seen = new_seen();

	publish_from(0, BATCH);
	read_all(source, seen, 1, true);
	proxy.mode = PROXY_CUT;
	read_ahead(source, seen);
	proxy.mode = PROXY_PASS;
	read_all_in_the_end(source, seen, BATCH);
	if (backend->unanswered)
		check_none_came_thrice(seen, BATCH);
	else
		check_each_once(seen, BATCH);
	pr_source_close(source);
}

TEST(invalid_credentials_are_an_outage_and_not_repeated)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_events events = { 0 };
	struct pr_source *source;

	if (!backend->put_intruder_url)
		return;
	backend->put_intruder_url(&url, SERVER_HOST, server.port, name);
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	CHECK_INT(try_read(source, &events, LIMIT, SHORT_MS), POSTROOM_UNAVAILABLE);
	CHECK_MSG(strlen(rig.err.text) > 20, "%s", rig.err.text);
	CHECK(!strstr(rig.err.text, "wrong-secret"));
	pr_source_close(source);
	pr_events_release(&events);
}

TEST(missing_source_is_named_until_it_exists)
{
	PR_CLEANUP_BUF struct pr_buf url = { 0 };
	struct pr_events events = { 0 };
	struct pr_source *source;

	backend->put_url(&url, SERVER_HOST, server.port, "not-made-yet");
	CHECK_INT(pr_source_open(pr_buf_text(&url), "readers", AMPLE_MS, &source, &rig.err),
		  POSTROOM_OK);
	if (backend->makes) {
		CHECK_INT(try_read(source, &events, LIMIT, SHORT_MS), POSTROOM_OK);
	} else {
		if (backend->set_missing)
			backend->set_missing("not-made-yet", true);
		CHECK_INT(try_read(source, &events, LIMIT, AMPLE_MS), POSTROOM_UNAVAILABLE);
		CHECK_CONTAINS(rig.err.text, "not-made-yet");
		if (backend->set_missing)
			backend->set_missing("not-made-yet", false);
		else
			backend->prepare(&server, "not-made-yet");
		while (try_read(source, &events, LIMIT, SHORT_MS) < 0)
			wait_a_moment();
	}
	CHECK_INT(events.count, 0);
	pr_source_close(source);
	pr_events_release(&events);
}
