/* SPDX-License-Identifier: Apache-2.0 */
/* Which servers kafka: trusts. librdkafka before 2.0 checks host names only on request. */
#include "contract/sink/sink.h"
#include "servers/tls.h"

#define SHORT_MS 2000 /* for a publish that is meant to run out of time */

static struct server server;
static struct rig rig;

static void publish_to(const char *host, const char *settings)
{
	char url[300];
	postroom_delivery *items;

	rig_init(&rig);
	snprintf(url, sizeof(url),
		 "kafka://%s:%d/orders?kafka.security.protocol=ssl&kafka.ssl.ca.location=ca.pem%s",
		 host, server.port, settings);
	rig_open(&rig, url);
	rig.flight.timeout_ms = SHORT_MS;
	items = rig_items(&rig, 1);
	rig_publish(&rig, items, 1);
	CHECK_INT(items[0].verdict, POSTROOM_UNREACHABLE);
	write_file("reason", items[0].reason);
	rig_release(&rig);
}

static void begin_with(const char *host)
{
	server.port = server_free_port();
	tls_start(&server, host);
}

TEST(K5_sink_refuses_certificate_of_another_host)
{
	PR_CLEANUP_BUF struct pr_buf reason = { 0 };

	begin_with("other.example");
	publish_to("localhost", "");
	CHECK(!tls_was_trusted());
	read_file("reason", &reason);
	CHECK_CONTAINS(pr_buf_text(&reason), "certificate verify failed");
	publish_to("localhost", "&kafka.ssl.endpoint.identification.algorithm=none");
	CHECK(tls_was_trusted());
	server_kill(&server);
}

TEST(K5_sink_trusts_certificate_of_its_host)
{
	begin_with("localhost");
	publish_to("localhost", "");
	CHECK(tls_was_trusted());
	server_kill(&server);
}
