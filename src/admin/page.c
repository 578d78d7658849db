/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the dashboard. They hold no data and need no token: the page asks for it. */
#include "admin/assets.h"
#include "admin/server.h"

#include <string.h>

static const char *type_of(const char *name)
{
	static const char *const types[][2] = {
		{ ".html", "text/html; charset=utf-8" },
		{ ".css", "text/css; charset=utf-8" },
		{ ".js", "text/javascript; charset=utf-8" },
		{ ".svg", "image/svg+xml" },
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < sizeof(types) / sizeof(*types); i++) {
		if (strcmp(types[i][0], dot) == 0)
			return types[i][1];
	}
	return "application/octet-stream";
}

void pr_api_page(struct pr_admin_request *request)
{
	const char *name = *request->id ? request->id : "index.html";

	for (const struct pr_asset *asset = pr_page_assets; asset->name; asset++) {
		if (strcmp(asset->name, name) == 0) {
			request->answer.code = 200;
			request->answer.type = type_of(name);
			request->answer.fixed = asset->data;
			request->answer.fixed_len = asset->len;
			request->answer.page = true;
			return;
		}
	}
	pr_request_refuse(request, 404, "not_found",
			  "there is no such path; GET /api/v1/openapi.json lists them");
}
