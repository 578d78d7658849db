/* SPDX-License-Identifier: Apache-2.0 */
/* One configuration of the server, shared by the requests that began under it. */
#ifndef PR_ADMIN_SETTINGS_H
#define PR_ADMIN_SETTINGS_H

#include "admin/admin.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define PR_TOKEN_DIGEST 32

/* Compared as digests: neither the length nor the common prefix of a guess shows in the time. */
struct pr_token {
	bool set;
	unsigned char digest[PR_TOKEN_DIGEST];
};

struct pr_admin_settings {
	atomic_int users;
	char *listen;  /* as it was given */
	char host[64]; /* its address, without brackets */
	struct pr_token token, read_token;
	bool read_only;
	enum pr_admin_payloads show_payloads;
	struct pr_admin_limit backlog, oldest_age_ms, dead;
};

/* The configuration must have passed pr_admin_config_check(). NULL: no memory. */
struct pr_admin_settings *pr_settings_new(const struct pr_admin_config *config);
struct pr_admin_settings *pr_settings_ref(struct pr_admin_settings *settings);
void pr_settings_unref(struct pr_admin_settings *settings);

bool pr_token_matches(const struct pr_token *token, const char *guess, size_t len);

/* listen.c */
struct pr_listen_address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at;
	socklen_t len;
	char host[64]; /* without brackets */
	bool loopback;
};
int pr_listen_parse(const char *text, struct pr_listen_address *ret, struct pr_err *err);
/* A descriptor that listens; POSTROOM_INVALID: the address is in use, or not ours. */
int pr_listen_open(const char *text, int *ret, struct pr_err *err);
/* "127.0.0.1:8025", as the system has it: the port may have been 0. */
void pr_listen_name(int fd, char *out, size_t size);

#endif
