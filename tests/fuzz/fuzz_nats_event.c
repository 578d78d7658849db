/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of JetStream: reply, subject, and pairs of header names and values up to an empty name. */
#include "fuzz_event.h"

#include "broker/nats/source.h"

static natsMsg *make_message(const uint8_t *data, size_t size)
{
	char *reply = fuzz_take_text(&data, &size), *subject = fuzz_take_text(&data, &size);
	natsMsg *msg = NULL;
	char *names[16], *values[16];
	size_t count = 0;

	for (; count < 16 && size > 0 && *data; count++) {
		names[count] = fuzz_take_text(&data, &size);
		values[count] = fuzz_take_text(&data, &size);
	}
	/* The rest is the content. */
	if (natsMsg_Create(&msg, subject, reply, (const char *)data, (int)size) == NATS_OK) {
		for (size_t i = 0; i < count; i++)
			natsMsgHeader_Add(msg, names[i], values[i]);
	}
	for (size_t i = 0; i < count; i++) {
		free(names[i]);
		free(values[i]);
	}
	free(reply);
	free(subject);
	return msg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char stream[] = "ORDERS";
	struct pr_nats_source nats = { .source.url.path = stream };
	struct pr_events events = { 0 };
	struct pr_err err;
	natsMsg *msg = make_message(data, size);

	if (msg && pr_nats_is_event(natsMsg_GetReply(msg))) {
		HOLDS(pr_nats_add_event(&nats, msg, &events, &err) >= 0);
		HOLDS(events.count == 1);
		fuzz_check_events(&events);
	}
	natsMsg_Destroy(msg);
	pr_events_release(&events);
	pr_buf_release(&nats.text);
	pr_buf_release(&nats.value);
	pr_buf_release(&nats.headers);
	return 0;
}
