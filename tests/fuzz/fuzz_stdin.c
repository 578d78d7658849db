/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on standard input. */
#include "fuzz_event.h"

#include "base/time.h"

#include <sys/mman.h>
#include <unistd.h>

#define LIMIT 3

static void give(const uint8_t *data, size_t size)
{
	static bool ready;

	if (!ready) {
		int fd = memfd_create("stdin", 0);

		HOLDS(fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
		ready = true;
	}
	HOLDS(ftruncate(STDIN_FILENO, 0) == 0);
	HOLDS(pwrite(STDIN_FILENO, data, size, 0) == (ssize_t)size);
	HOLDS(lseek(STDIN_FILENO, 0, SEEK_SET) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pr_source *source = NULL;
	struct pr_events events = { 0 };
	struct pr_err err = { 0 };
	struct pr_flight flight = { .timeout_ms = 1000 };
	int status;

	give(data, size);
	HOLDS(pr_source_open("-", "h", 1000, &source, &err) >= 0);
	do {
		pr_events_reset(&events);
		flight.begin_until_us = pr_mono_us() + 60 * 1000000LL;
		status = source->ops->read(source, &events, LIMIT, &flight, &err);
		HOLDS(status >= 0 ? events.count > 0 && events.count <= LIMIT
				  : status == POSTROOM_NOT_FOUND);
		fuzz_check_events(&events);
	} while (status >= 0);
	pr_source_close(source);
	pr_events_release(&events);
	return 0;
}
