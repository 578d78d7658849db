/* SPDX-License-Identifier: Apache-2.0 */
/* A function of the embedding program as a sink; see <postroom/relay.h>. */
#ifndef PR_SINK_CALLBACK_H
#define PR_SINK_CALLBACK_H

#include "sink/sink.h"

#include <postroom/relay.h>

struct pr_callback {
	postroom_publish_fn publish; /* NULL: there is none */
	void *context;
};

int pr_sink_open_callback(const struct pr_callback *callback, struct pr_sink **ret,
			  struct pr_err *err);

#endif
