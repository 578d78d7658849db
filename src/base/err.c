/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pr_err_set(struct pr_err *err, int status, const char *format, ...)
{
	va_list args;

	if (!err)
		return status;
	err->status = status;
	err->native = 0;
	err->sqlstate[0] = '\0';
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return status;
}

int pr_err_errno(struct pr_err *err, int status, const char *format, ...)
{
	int code = errno;
	size_t used;
	va_list args;

	if (!err)
		return status;
	err->status = status;
	err->native = code;
	err->sqlstate[0] = '\0';
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	used = strlen(err->text);
	snprintf(err->text + used, sizeof(err->text) - used, ": %s", strerror(code));
	return status;
}

int pr_err_prefix(struct pr_err *err, const char *format, ...)
{
	char text[2 * sizeof(err->text) + sizeof(": ")];
	size_t used;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(err->text), format, args);
	va_end(args);
	used = strlen(text);
	snprintf(text + used, sizeof(text) - used, ": %s", err->text);
	text[sizeof(err->text) - 1] = '\0';
	memcpy(err->text, text, sizeof(err->text));
	return err->status;
}

int pr_err_nomem(struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_NOMEM, "out of memory");
}

void pr_err_clear(struct pr_err *err)
{
	err->status = 0;
	err->native = 0;
	err->sqlstate[0] = '\0';
	err->text[0] = '\0';
}
