/* SPDX-License-Identifier: Apache-2.0 */
/* Access control: roles, tokens and origins. */
#ifndef PR_ADMIN_ACCESS_H
#define PR_ADMIN_ACCESS_H

#include "admin/request.h"

/* Headers of a request; NULL: it has none of that name. */
struct pr_admin_headers {
	const char *host;
	const char *authorization;
	const char *origin;
	const char *fetch_site;
};

/*
 * Sets role and actor of a request that has its route and settings. False: it is refused, and the
 * answer says why.
 */
bool pr_access_check(struct pr_admin_request *request, const struct pr_admin_headers *headers);

/* May this request see payloads, bodies and headers of messages? */
bool pr_access_shows_payloads(const struct pr_admin_request *request);

/* For the tests: is it a name of this machine, or the address that we listen on? */
bool pr_host_is_ours(const char *host, const char *listen_host);
bool pr_origin_is_host(const char *origin, const char *host);

#endif
