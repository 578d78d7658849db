/* SPDX-License-Identifier: Apache-2.0 */
/* postroom_relay_metrics(): the text of /metrics for the embedding program. */
#include "library/relay.h"

#include <stdlib.h>
#include <string.h>

/* The whole text, as the header says how to get it. */
static char *read_metrics(void)
{
	size_t size = 1, needed = 0;
	char *text = malloc(size);

	while (postroom_relay_metrics(rig.relay, text, size, &needed) == POSTROOM_NOMEM) {
		CHECK(needed > size);
		CHECK_STR(text, "");
		free(text);
		size = needed;
		text = malloc(size);
		CHECK(text);
	}
	CHECK_INT(strlen(text) + 1, needed);
	return text;
}

static void reject_odd_ones(postroom_delivery *item, size_t index, postroom_flight *flight)
{
	if (strcmp(item->topic, "odd") != 0)
		deliver(item, index, flight);
	else
		item->verdict = POSTROOM_REJECTED;
}

static void check_text(const char *text, const char *part)
{
	CHECK_MSG(strstr(text, part), "%s is not in\n%s", part, text);
}

TEST(M1_embedded_relay_writes_its_metrics_into_a_buffer)
{
	char *text;

	for (int i = 0; i < 3; i++)
		PUT(.topic = "orders", .payload = "1");
	PUT(.topic = "odd", .payload = "1");
	OPEN(.workers = 1, .drain = 1);
	text = read_metrics();
	check_text(text, "\npostroom_leases_lost_total 0\n");
	CHECK(!strstr(text, "topic=\"orders\""));
	free(text);
	run_relay(reject_odd_ones);
	text = read_metrics();
	check_text(text, "\npostroom_messages_published_total{topic=\"orders\",sink=\"callback\","
			 "outcome=\"delivered\"} 3\n");
	check_text(text, "\npostroom_messages_dead_total{topic=\"odd\",reason=\"permanent\"} 1\n");
	check_text(text, "\npostroom_delivery_latency_seconds_count{sink=\"callback\"} 3\n");
	/* The program has these itself. */
	CHECK(!strstr(text, "process_"));
	free(text);
	close_relay();
}

TEST(M1_buffer_that_is_too_small_gets_no_part_of_the_metrics)
{
	char text[8] = "before";
	size_t needed = 0;

	OPEN(.workers = 1);
	CHECK_INT(postroom_relay_metrics(rig.relay, NULL, 0, &needed), POSTROOM_NOMEM);
	CHECK(needed > 1000);
	CHECK_INT(postroom_relay_metrics(rig.relay, text, sizeof(text), NULL), POSTROOM_NOMEM);
	CHECK_STR(text, "");
	close_relay();
}

TEST(M1_relay_that_could_not_be_opened_has_no_metrics)
{
	postroom_relay *relay = NULL;
	char text[8] = "before";
	size_t needed = 1;

	CHECK_INT(postroom_relay_open(POSTROOM_RELAY(.url = "nowhere://x", .publish = publish),
				      &relay),
		  POSTROOM_INVALID);
	CHECK_INT(postroom_relay_metrics(relay, text, sizeof(text), &needed), POSTROOM_INVALID);
	CHECK_STR(text, "");
	CHECK_INT(needed, 0);
	postroom_relay_close(relay);
}

static void *scrape(void *unused)
{
	while (!atomic_load(&rig.flag))
		free(read_metrics());
	return unused;
}

/* For the thread sanitizer. */
TEST(M1_metrics_of_embedded_relay_may_be_read_from_any_thread)
{
	pthread_t threads[2];

	for (int i = 0; i < 100; i++)
		PUT(.topic = "orders", .payload = "1");
	OPEN(.workers = 2, .drain = 1, .batch_size = 5);
	for (size_t i = 0; i < 2; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, scrape, NULL), 0);
	run_relay(deliver);
	atomic_store(&rig.flag, 1);
	for (size_t i = 0; i < 2; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	close_relay();
}
