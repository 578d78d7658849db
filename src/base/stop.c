/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"

#include "base/time.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int pr_stop_init(struct pr_stop *stop, struct pr_err *err)
{
	stop->deadline_us = 0;
	stop->parent = NULL;
	stop->fd = stop->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop->fd < 0)
		return pr_err_errno(err, POSTROOM_NOMEM, "creating an event descriptor");
	return POSTROOM_OK;
}

int pr_stop_init_under(struct pr_stop *stop, const struct pr_stop *parent, struct pr_err *err)
{
	struct epoll_event readable = { .events = EPOLLIN };
	int both, status = pr_stop_init(stop, err);

	if (status < 0)
		return status;
	both = epoll_create1(EPOLL_CLOEXEC);
	if (both < 0 || epoll_ctl(both, EPOLL_CTL_ADD, stop->event, &readable) < 0 ||
	    epoll_ctl(both, EPOLL_CTL_ADD, parent->fd, &readable) < 0) {
		status = pr_err_errno(err, POSTROOM_NOMEM, "creating an event descriptor");
		if (both >= 0)
			close(both);
		pr_stop_release(stop);
		return status;
	}
	stop->fd = both;
	stop->parent = parent;
	return POSTROOM_OK;
}

void pr_stop_release(struct pr_stop *stop)
{
	if (stop->event >= 0 && stop->event != stop->fd)
		close(stop->event);
	if (stop->fd >= 0)
		close(stop->fd);
	stop->fd = stop->event = -1;
}

void pr_stop_request(struct pr_stop *stop, int64_t grace_ms)
{
	int saved = errno;
	int64_t none = 0;
	uint64_t one = 1;
	ssize_t written;

	/* The first request sets the deadline; later requests do not extend it. */
	atomic_compare_exchange_strong(&stop->deadline_us, &none, pr_mono_us() + grace_ms * 1000);
	written = write(stop->event, &one, sizeof(one));
	(void)written; /* it can only fail when the counter is full, and then fd is readable
		        * anyway */
	errno = saved;
}

int64_t pr_stop_deadline_us(const struct pr_stop *stop)
{
	int64_t first_us = 0;

	for (; stop; stop = stop->parent) {
		int64_t deadline_us = atomic_load(&stop->deadline_us);

		if (deadline_us && (!first_us || deadline_us < first_us))
			first_us = deadline_us;
	}
	return first_us;
}

bool pr_stop_requested(const struct pr_stop *stop)
{
	return pr_stop_deadline_us(stop) != 0;
}

bool pr_stop_overdue(const struct pr_stop *stop)
{
	int64_t deadline_us = pr_stop_deadline_us(stop);

	return deadline_us && pr_mono_us() >= deadline_us;
}

bool pr_stop_is_over(const struct pr_stop *stop)
{
	int64_t deadline_us = pr_stop_deadline_us(stop);

	return deadline_us && pr_mono_us() >= deadline_us + PR_STOP_LAST_US;
}

int pr_stop_event_fd(const struct pr_stop *stop)
{
	while (stop && pr_stop_requested(stop))
		stop = stop->parent;
	return stop ? stop->fd : -1;
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
