/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"

#include "base/time.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int pr_stop_init(struct pr_stop *stop, struct pr_err *err)
{
	stop->deadline_us = 0;
	stop->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop->fd < 0)
		return pr_err_errno(err, POSTROOM_NOMEM, "making an event descriptor");
	return POSTROOM_OK;
}

void pr_stop_release(struct pr_stop *stop)
{
	if (stop->fd >= 0)
		close(stop->fd);
	stop->fd = -1;
}

void pr_stop_request(struct pr_stop *stop, int64_t grace_ms)
{
	int saved = errno;
	int64_t none = 0;
	uint64_t one = 1;
	ssize_t written;

	/* The first request decides how much time there is; later ones do not prolong it. */
	atomic_compare_exchange_strong(&stop->deadline_us, &none, pr_mono_us() + grace_ms * 1000);
	written = write(stop->fd, &one, sizeof(one));
	(void)written; /* it can only fail when the counter is full, and so readable anyway */
	errno = saved;
}

bool pr_stop_requested(const struct pr_stop *stop)
{
	return stop && atomic_load(&stop->deadline_us) != 0;
}

bool pr_stop_overdue(const struct pr_stop *stop)
{
	int64_t deadline_us = stop ? atomic_load(&stop->deadline_us) : 0;

	return deadline_us && pr_mono_us() >= deadline_us;
}

bool pr_stop_wait(const struct pr_stop *stop, int64_t ms)
{
	int64_t until_us = pr_mono_us() + ms * 1000;
	struct pollfd fd = { .fd = stop ? stop->fd : -1, .events = POLLIN };

	while (!pr_stop_requested(stop)) {
		int64_t left_us = until_us - pr_mono_us();
		int64_t left_ms = (left_us + 999) / 1000;

		if (left_us <= 0)
			return false;
		poll(&fd, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
	}
	return true;
}
