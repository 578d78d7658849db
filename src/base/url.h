/* SPDX-License-Identifier: Apache-2.0 */
/* SCHEME:REST or SCHEME://AUTHORITY/PATH, with settings after '?'. */
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
	char *path; /* after the authority's '/', or the whole rest without "//"; an empty
		     * authority leaves the '/' in it */
	char *raw_path; /* the same, not decoded */
	struct pr_url_setting *settings;
	size_t setting_count;
	char *memory; /* memory of all parts */
};

/* On failure url is left released. Passwords never appear in errors. */
int pr_url_parse(const char *text, struct pr_url *url, struct pr_err *err);
void pr_url_release(struct pr_url *url);

/* True if the value of a setting of that name is secret. */
bool pr_url_is_secret(const char *name);
/*
 * Hides the secrets, in place, in a URL, a libpq connection string, or any word of a command line
 * that may be one.
 */
void pr_url_hide(char *text);

/*
 * Copies text for messages, without its password and without settings that are named like secrets:
 * "redis://:***@host/stream". The path of a web server may contain a token: only its slashes and
 * template fields are shown. out gets at most size bytes.
 */
void pr_url_redact(const char *text, char *out, size_t size);

#endif
