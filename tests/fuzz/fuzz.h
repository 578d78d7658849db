/* SPDX-License-Identifier: Apache-2.0 */
/* A property that does not hold ends the process, and the fuzzer keeps the input. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(property)                                                                            \
	do {                                                                                       \
		if (!(property)) {                                                                 \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__,           \
				#property);                                                        \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
