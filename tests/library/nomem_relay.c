/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a relay when there is no memory; contract/store/nomem.c explains. */
#include "contract/store/nomem.h"

#include <postroom/relay.h>

static void publish(void *context, postroom_delivery *const *items, size_t count,
		    postroom_flight *flight)
{
	(void)context, (void)items, (void)count, (void)flight;
}

static int open_relay(void)
{
	postroom_relay *relay;
	int status = postroom_relay_open(POSTROOM_RELAY(.url = "nomem.db", .publish = publish,
							.ns = "shop", .topic = "orders.*"),
					 &relay);

	if (status < 0)
		CHECK(*postroom_relay_errmsg(relay));
	postroom_relay_close(relay);
	return status;
}

TORTURE(D2_opening_a_relay_without_memory_is_reported, .run = open_relay)
