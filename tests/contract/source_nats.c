/* SPDX-License-Identifier: Apache-2.0 */
/* What nats: promises as a source beyond the contract. */
#include "contract/source.h"

#include "base/time.h"
#include "servers/nats.h"

/* Of the window in which a message is known again: as short as the server takes it. */
#define SHORTEST_NS ((int64_t)100 * 1000 * 1000)

static void prepare(const struct server *at, const char *stream)
{
	jsStreamConfig config;
	char subject[64];

	jsStreamConfig_Init(&config);
	config.Duplicates = SHORTEST_NS;
	snprintf(subject, sizeof(subject), "%s.>", stream);
	nats_add_stream(at, stream, subject, config);
}

static void put_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	pr_buf_printf(out, "nats://%s:%s@%s:%d/%s", NATS_USER, NATS_PASSWORD_IN_URL, host, port,
		      stream);
}

static void put_sink_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	put_url(out, host, port, stream);
	pr_buf_puts(out, ".{topic}");
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *stream)
{
	pr_buf_printf(out, "nats://" NATS_USER ":wrong-secret@%s:%d/%s", host, port, stream);
}

static void publish_foreign(const struct server *at, const char *stream, const char *body)
{
	struct nats_desk desk;
	char subject[64];

	snprintf(subject, sizeof(subject), "%s.foreign", stream);
	CHECK(nats_reach(at, &desk));
	CHECK(js_Publish(NULL, desk.js, subject, body, (int)strlen(body), NULL, NULL) == NATS_OK);
	nats_leave(&desk);
}

const struct source_backend nats_backend = {
	.server = &nats_kind,
	.prepare = prepare,
	.put_url = put_url,
	.put_sink_url = put_sink_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.wrong = { "nats:", "nats://localhost", "nats:///ORDERS", "nats://localhost:0/ORDERS",
		   "nats://localhost/orders.created", "nats://localhost/OR%20DERS",
		   "nats://localhost/ORDERS?durable=a.b", "nats://localhost/ORDERS?durable=",
		   "nats://localhost/ORDERS?creds=/nowhere", "nats://localhost/ORDERS?cert=/nowhere",
		   "nats://:password@localhost/ORDERS", "nats://localhost/ORDERS?durabel=a" },
	.shares = true,
	.returns = true,
	.groups = true,
	.shortest_lease_ms = 300,
};
