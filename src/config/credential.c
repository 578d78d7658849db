/* SPDX-License-Identifier: Apache-2.0 */
#include "config/credential.h"

#include <postroom.h>

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREDENTIAL_MAX ((size_t)64 * 1024)

size_t pr_credential_name_length(const char *text)
{
	size_t len = 0;

	if (*text == '.')
		return 0;
	while (isalnum((unsigned char)text[len]) || (text[len] && strchr("_.-", text[len])))
		len++;
	return len;
}

static int read_all(const char *path, FILE *file, struct pr_buf *content, struct pr_err *err)
{
	char *bytes = pr_buf_reserve(content, CREDENTIAL_MAX + 1);
	size_t len;

	if (!bytes)
		return pr_err_nomem(err);
	len = fread(bytes, 1, CREDENTIAL_MAX + 1, file);
	if (ferror(file))
		return pr_err_errno(err, POSTROOM_INVALID, "cannot read %s", path);
	if (len > CREDENTIAL_MAX || memchr(bytes, '\0', len))
		return pr_err_set(err, POSTROOM_INVALID, "%s is longer than %zu bytes or not text",
				  path, CREDENTIAL_MAX);
	if (len > 0 && bytes[len - 1] == '\n')
		len--;
	content->len += len;
	content->data[content->len] = '\0';
	return POSTROOM_OK;
}

int pr_credential_read(const char *name, struct pr_buf *out, struct pr_err *err)
{
	const char *directory = getenv("CREDENTIALS_DIRECTORY");
	char path[PATH_MAX];
	FILE *file;
	int status;

	if (!directory || !*directory)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"credential %s: $CREDENTIALS_DIRECTORY is not set; with systemd, add "
			"LoadCredential=%s:FILE to the unit",
			name, name);
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path))
		return pr_err_set(err, POSTROOM_INVALID, "credential %s: its path is too long",
				  name);
	file = fopen(path, "re");
	if (!file)
		return pr_err_errno(err, POSTROOM_INVALID, "credential %s: cannot open %s", name,
				    path);
	status = read_all(path, file, out, err);
	fclose(file);
	return status < 0 ? pr_err_prefix(err, "credential %s", name) : status;
}
