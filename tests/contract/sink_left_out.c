/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
#include "sink/sink.h"

TEST(a_sink_that_was_left_out_says_how_to_bring_it_back)
{
	struct pr_sink *none = NULL;
	struct pr_err err = { 0 };

	CHECK_INT(pr_sink_open("redis://:secret@localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_STR(err.text, "this postroom was built without redis; build it with "
			    "-Dredis=enabled (libhiredis-dev)");
	CHECK_INT(pr_sink_open("REDISS://localhost/orders", &none, &err), POSTROOM_SINK);
	CHECK_CONTAINS(err.text, "-Dredis=enabled");
	CHECK(none == NULL);
	for (size_t i = 0; pr_sinks[i]; i++)
		CHECK(strcmp(pr_sinks[i]->schemes[0], "redis") != 0);
}
