/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets in files of $CREDENTIALS_DIRECTORY, which systemd sets for LoadCredential=. */
#ifndef PR_CONFIG_CREDENTIAL_H
#define PR_CONFIG_CREDENTIAL_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>

/* The length of a credential's name at text, or 0. The name is that of a file: it names no other directory. */
size_t pr_credential_name_length(const char *text);

/*
 * Appends the content of a credential to out, without the newline at its end. Its
 * errors name the credential and its file, but nothing of its content.
 */
int pr_credential_read(const char *name, struct pr_buf *out, struct pr_err *err);

#endif
