/* SPDX-License-Identifier: Apache-2.0 */
/* What redis: promises as a source beyond the contract. */
#include "contract/source.h"

#include "base/time.h"
#include "servers/redis.h"

#include <stdlib.h>

static void put_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "redis://:" REDIS_PASSWORD "@%s:%d/%s", host, port, name);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port, const char *name)
{
	pr_buf_printf(out, "redis://:wrong-secret@%s:%d/%s", host, port, name);
}

static void publish_foreign(const struct server *server, const char *name, const char *body)
{
	redis_tell(server, "XADD %s * payload %s", name, body);
}

const struct source_backend redis_backend = {
	.server = &redis_kind,
	.put_url = put_url,
	.put_sink_url = put_url,
	.put_intruder_url = put_intruder_url,
	.publish_foreign = publish_foreign,
	.wrong = { "redis:", "redis://localhost", "redis:///orders", "redis://localhost:0/orders",
		   "redis://localhost/0", "redis://user@localhost/orders",
		   "redis://localhost/orders?ca=x", "rediss://localhost/orders?ca=/nowhere",
		   "redis://localhost/orders?group=", "redis://localhost/orders?grup=a",
		   "rediz://localhost/orders" },
	.makes = true,
	.shares = true,
	.returns = true,
	.groups = true,
	.shortest_lease_ms = 300,
};
