/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that publishes to a server of this process, whose answer is the input. */
#ifndef TESTS_FUZZ_SERVER_H
#define TESTS_FUZZ_SERVER_H

#include "fuzz.h"

#include <postroom/store.h>

#define FUZZ_MESSAGES 3

/*
  * Publishes FUZZ_MESSAGES messages to url, which has PORT in the place of the port. For any reply of the
  * server, publish returns, and each message has a verdict, a failed one with a reason.
 */
void fuzz_publish(const char *url, const uint8_t *data, size_t size);

#endif
