/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Without a token, the Host header must name this machine: a foreign page whose name was
 *    rebound to 127.0.0.1 sends its own name.
 * 2. A request that changes something never comes from a page of another origin.
 * 3. Read-only is decided here, for every route, and not by what the dashboard offers.
 */
#include "admin/access.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Copies the host of "host[:port]" without brackets. False: it is none. */
static bool split_host(const char *text, char *out, size_t size)
{
	const char *start = text, *end;
	size_t len;

	if (*text == '[') {
		start = text + 1;
		end = strchr(start, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		text = end + 1;
	} else {
		end = text + strcspn(text, ":");
		text = end;
	}
	if (*text == ':' && (text[1 + strspn(text + 1, "0123456789")] || strlen(text) > 6))
		return false;
	len = (size_t)(end - start);
	if (len == 0 || len >= size)
		return false;
	memcpy(out, start, len);
	out[len] = '\0';
	return true;
}

bool pr_host_is_ours(const char *host, const char *listen_host)
{
	char name[64];
	struct in_addr v4;
	struct in6_addr v6;

	if (!host || !split_host(host, name, sizeof(name)))
		return false;
	if (strcasecmp(name, "localhost") == 0 || strcasecmp(name, listen_host) == 0)
		return true;
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool pr_origin_is_host(const char *origin, const char *host)
{
	const char *rest = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
			   : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
								     : NULL;

	return rest && host && *rest && strcasecmp(rest, host) == 0;
}

/* Each header that is present must name this server: one of them alone proves nothing. */
static bool is_foreign(const struct pr_admin_headers *headers)
{
	if (headers->fetch_site && strcmp(headers->fetch_site, "same-origin") != 0 &&
	    strcmp(headers->fetch_site, "none") != 0)
		return true;
	return headers->origin && !pr_origin_is_host(headers->origin, headers->host);
}

static void find_role(struct pr_admin_request *request, const char *authorization)
{
	static const char scheme[] = "Bearer ";
	const struct pr_admin_settings *settings = request->settings;
	const char *guess;

	request->role = PR_ROLE_NOBODY;
	request->actor = "anonymous";
	if (!settings->token.set && !settings->read_token.set) {
		request->role = PR_ROLE_OPERATOR;
		request->actor = "local";
		return;
	}
	if (!authorization || strncasecmp(authorization, scheme, strlen(scheme)) != 0)
		return;
	guess = authorization + strlen(scheme);
	if (pr_token_matches(&settings->token, guess, strlen(guess))) {
		request->role = PR_ROLE_OPERATOR;
		request->actor = "token";
	} else if (pr_token_matches(&settings->read_token, guess, strlen(guess))) {
		request->role = PR_ROLE_READER;
		request->actor = "read_token";
	}
}

bool pr_access_check(struct pr_admin_request *request, const struct pr_admin_headers *headers)
{
	const struct pr_admin_settings *settings = request->settings;
	bool tokens = settings->token.set || settings->read_token.set;
	bool unsafe = request->route->method != PR_METHOD_GET;

	find_role(request, headers->authorization);
	if (!tokens && !pr_host_is_ours(headers->host, settings->host))
		return pr_request_refuse(
			request, 403, "forbidden_host",
			"without a token, requests must name this machine in their "
			"Host header, such as localhost or 127.0.0.1");
	if (request->role == PR_ROLE_NOBODY && !(request->route->flags & PR_ROUTE_OPEN))
		return pr_request_refuse(
			request, 401, "unauthorized", "%s; send Authorization: Bearer TOKEN",
			headers->authorization ? "the token is wrong" : "a token is needed");
	if (!unsafe)
		return true;
	if (is_foreign(headers))
		return pr_request_refuse(request, 403, "forbidden_origin",
					 "requests from pages of another origin must not change "
					 "anything");
	if (settings->read_only)
		return pr_request_refuse(request, 403, "read_only",
					 "this server is read-only (admin.read_only)");
	if (request->role == PR_ROLE_READER)
		return pr_request_refuse(request, 403, "read_only",
					 "this token is read-only (admin.read_token)");
	return true;
}

bool pr_access_shows_payloads(const struct pr_admin_request *request)
{
	return request->settings->show_payloads == PR_PAYLOADS_ALWAYS ||
	       (request->settings->show_payloads == PR_PAYLOADS_ADMIN &&
		request->role == PR_ROLE_OPERATOR);
}
