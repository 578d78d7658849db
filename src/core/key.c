/* SPDX-License-Identifier: Apache-2.0 */
/* I1: the deterministic key. */
#include "base/buf.h"
#include "base/text.h"
#include "base/uuid.h"

#include <postroom.h>

#include <openssl/sha.h>
#include <string.h>

static bool part_valid(const char *part, bool colons)
{
	return part && pr_utf8_valid(part, strlen(part)) && (colons || !strchr(part, ':'));
}

int postroom_key(const char *tenant, const char *category, const char *entity, const char *kind,
		 const char *version, char out[POSTROOM_ID_SIZE])
{
	const char *parts[] = { tenant, category, entity, kind, version ? version : "0" };
	unsigned char digest[SHA256_DIGEST_LENGTH];
	PR_CLEANUP_BUF struct pr_buf canonical = { 0 };

	for (size_t i = 0; i < 5; i++) {
		if (!part_valid(parts[i], i == 2))
			return POSTROOM_INVALID;
		if (i > 0)
			pr_buf_putc(&canonical, ':');
		pr_buf_puts(&canonical, parts[i]);
	}
	if (canonical.failed)
		return POSTROOM_NOMEM;
	/* Not tolower(), which depends on the locale: keys must not. */
	for (size_t i = 0; i < canonical.len; i++) {
		if (canonical.data[i] >= 'A' && canonical.data[i] <= 'Z')
			canonical.data[i] = (char)(canonical.data[i] - 'A' + 'a');
	}
	SHA256((const unsigned char *)canonical.data, canonical.len, digest);
	pr_uuid_format(digest, out);
	return POSTROOM_OK;
}
