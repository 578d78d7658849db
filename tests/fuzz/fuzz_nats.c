/* SPDX-License-Identifier: Apache-2.0 */
/* What JetStream may answer to a message. */
#include "fuzz.h"

#include "broker/nats/reply.h"

#include <limits.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_nats_answer answer = { .text = &text };
	natsMsg *msg = NULL;

	/* The library's own state is made once. */
	if (size > INT_MAX || nats_Open(-1) != NATS_OK)
		return 0;
	HOLDS(natsMsg_Create(&msg, "answer", NULL, (const char *)data, (int)size) == NATS_OK);
	pr_nats_read_reply(msg, &answer);
	HOLDS(!answer.acknowledged || (answer.json.data && answer.code == 0 && text.len == 0));
	HOLDS(answer.json.data || (!answer.acknowledged && answer.error == 0));
	natsMsg_Destroy(msg);
	return 0;
}
