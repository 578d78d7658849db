/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a server to http:. */
#include "fuzz_server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_publish("http://127.0.0.1:PORT/?connections=1&follow=1", data, size);
	return 0;
}
