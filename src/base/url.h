/* SPDX-License-Identifier: Apache-2.0 */
/* SCHEME:REST or SCHEME://AUTHORITY/PATH, with settings behind '?'. */
#ifndef PR_BASE_URL_H
#define PR_BASE_URL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pr_url_setting {
	char *name;
	char *value;
};

/* All strings are percent-decoded and owned by the URL; "" where a part is missing. */
struct pr_url {
	char *scheme; /* lower case */
	char *user;
	char *password;
	char *host; /* everything between user and path, port included, not decoded: "a:1,b:2" */
	char *path; /* behind the authority's '/', or all of the rest without "//"; an empty authority leaves it its '/' */
	char *raw_path; /* the same as it was written, not decoded */
	struct pr_url_setting *settings;
	size_t setting_count;
	char *memory; /* where all of it lives */
};

/* On failure url is left released. Passwords never appear in errors. */
int pr_url_parse(const char *text, struct pr_url *url, struct pr_err *err);
void pr_url_release(struct pr_url *url);

/* Whether a setting of that name is to be kept from people's eyes. */
bool pr_url_is_secret(const char *name);
/*
 * Makes the secrets unreadable, in place, of a URL, a libpq connection string, or any word of
 * a command line that may be one.
 */
void pr_url_hide(char *text);

/*
 * text without its password, and without settings that are named like secrets,
 * for messages: "redis://:***@host/stream". out gets at most size bytes.
 */
void pr_url_redact(const char *text, char *out, size_t size);

#endif
