/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End of the lease of a batch, on the monotonic clock of this process. It is counted
 * from before the claim is sent, so it ends before the lease in the database does.
 */
#ifndef PR_RELAY_LEASE_H
#define PR_RELAY_LEASE_H

#include "base/time.h"

struct pr_lease {
	int64_t until_us;
};

static inline struct pr_lease pr_lease_from_now(int64_t lease_ms)
{
	return (struct pr_lease){ pr_mono_us() + lease_ms * 1000 };
}

static inline int64_t pr_lease_left_ms(struct pr_lease lease)
{
	return (lease.until_us - pr_mono_us()) / 1000;
}

#endif
