/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers for the table of routes; fuzz_admin calls none. */
#include "admin/server.h"

#include <stdlib.h>

#define HANDLER(name)                                                                              \
	void name(struct pr_admin_request *request)                                                \
	{                                                                                          \
		(void)request;                                                                     \
		abort();                                                                           \
	}

HANDLER(pr_api_livez)
HANDLER(pr_api_readyz)
HANDLER(pr_api_healthz)
HANDLER(pr_api_metrics)
HANDLER(pr_api_openapi)
HANDLER(pr_api_stats)
HANDLER(pr_api_topics)
HANDLER(pr_api_sinks)
HANDLER(pr_api_workers)
HANDLER(pr_api_doctor)
HANDLER(pr_api_list)
HANDLER(pr_api_export)
HANDLER(pr_api_groups)
HANDLER(pr_api_retry)
HANDLER(pr_api_delete)
HANDLER(pr_api_show)
HANDLER(pr_api_retry_one)
HANDLER(pr_api_delete_one)
HANDLER(pr_api_page)
