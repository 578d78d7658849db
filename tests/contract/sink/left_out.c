/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
#include "sink/sink.h"

TEST(omitted_sink_reports_how_to_build_it)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open("redis://:secret@localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_STR(err.text, "this postroom was built without redis; build it with "
			    "-Dredis=enabled (libhiredis-dev)");
	CHECK_INT(pr_sink_open("REDISS://localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "-Dredis=enabled");
	CHECK_INT(pr_sink_open("amqps://user:secret@localhost/", &none, &err), POSTROOM_SINK);
	CHECK_STR(err.text, "this postroom was built without amqps; build it with "
			    "-Damqp=enabled (librabbitmq-dev)");
	CHECK_INT(pr_sink_open("kafka://localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_STR(err.text, "this postroom was built without kafka; build it with "
			    "-Dkafka=enabled (librdkafka-dev)");
	CHECK_INT(pr_sink_open("nats://token@localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "-Dnats=enabled (libnats-dev)");
	CHECK(none == NULL);
	for (size_t i = 0; pr_sinks[i]; i++)
		CHECK(strcmp(pr_sinks[i]->schemes[0], "redis") != 0);
}
