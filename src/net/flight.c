/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting with the deadlines of a flight. */
#include "net/flight.h"

#include "base/time.h"

#include <limits.h>

/* A wait past the end of the grace period checks again after this time. */
#define OVERDUE_PAUSE_US 10000

bool pr_flight_may_begin(const struct pr_flight *flight)
{
	return !pr_stop_requested(flight->stop) && pr_mono_us() < flight->begin_until_us &&
	       !pr_flight_lost(flight);
}

bool pr_flight_lost(const struct pr_flight *flight)
{
	return flight->renewer && pr_mono_us() >= flight->renewer->until_us;
}

/* Latest end of a wait, so that the lease is renewed in time and its expiry is noticed. */
static int64_t renew_if_due(const struct pr_flight *flight, int64_t until_us)
{
	struct pr_lease_renewer *renewer = flight->renewer;

	/* If the lease has expired, the process may have been suspended: it is not renewed, because
	 * another worker may hold the message. */
	if (!renewer || pr_flight_lost(flight))
		return until_us;
	if (pr_mono_us() >= renewer->next_us)
		renewer->renew(renewer);
	if (renewer->next_us < until_us)
		until_us = renewer->next_us;
	return renewer->until_us < until_us ? renewer->until_us : until_us;
}

int pr_flight_wait(const struct pr_flight *flight, struct pollfd *ret_own, int64_t until_us)
{
	/* Check first: a request that comes later wakes the poll immediately. */
	int stop_fd = pr_stop_event_fd(flight->stop);
	int64_t kept_us = renew_if_due(flight, until_us);
	int64_t stop_us = pr_stop_deadline_us(flight->stop);
	int64_t now_us = pr_mono_us();
	int64_t left_ms;

	*ret_own = (struct pollfd){ .fd = stop_fd, .events = POLLIN };
	until_us = kept_us;
	if (stop_us && stop_us < until_us)
		until_us = stop_us > now_us ? stop_us : now_us + OVERDUE_PAUSE_US;
	left_ms = until_us > now_us ? (until_us - now_us + 999) / 1000 : 0;
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

void pr_flight_poll(const struct pr_flight *flight, struct pollfd *fds, nfds_t count,
		    int64_t until_us)
{
	int left_ms = pr_flight_wait(flight, &fds[0], until_us);

	if (poll(fds, count, left_ms) <= 0) {
		for (nfds_t i = 0; i < count; i++)
			fds[i].revents = 0;
	}
}
