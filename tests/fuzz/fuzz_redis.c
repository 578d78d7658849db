/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a server to redis:. */
#include "fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_publish("redis://127.0.0.1:PORT/stream?wait=1", data, size);
	return 0;
}
