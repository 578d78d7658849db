/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "base/url.h"

#include <stdbool.h>

static void check_parts(const struct pr_url *url, size_t len)
{
	size_t sum = strlen(url->scheme) + strlen(url->user) + strlen(url->password) +
		     strlen(url->host) + strlen(url->path);

	HOLDS(*url->scheme);
	for (const char *c = url->scheme; *c; c++)
		HOLDS(*c < 'A' || *c > 'Z');
	for (size_t i = 0; i < url->setting_count; i++) {
		HOLDS(*url->settings[i].name);
		sum += strlen(url->settings[i].name) + strlen(url->settings[i].value);
	}
	HOLDS(sum < len);
}

/* The redacted URL names the same address, with stars for the password. */
static void check_redacted(const char *shown, const struct pr_url *url)
{
	struct pr_url again;

	HOLDS(pr_url_parse(shown, &again, NULL) == POSTROOM_OK);
	HOLDS(strcmp(again.scheme, url->scheme) == 0 && strcmp(again.host, url->host) == 0);
	HOLDS(strcmp(again.user, url->user) == 0);
	HOLDS(again.setting_count == url->setting_count);
	if (*url->password)
		HOLDS(strcmp(again.password, "***") == 0);
	pr_url_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Room enough: an empty secret gets three stars, and takes a byte before it at least. */
	char *text = malloc(size + 1), *shown = malloc(size * 4 + 4);
	struct pr_err err = { 0 };
	struct pr_url url;

	HOLDS(text && shown);
	memcpy(text, data, size);
	text[size] = '\0';
	pr_url_redact(text, shown, size * 4 + 4);
	if (pr_url_parse(text, &url, &err) == POSTROOM_OK) {
		check_parts(&url, strlen(text));
		/* An '@' elsewhere may be the end of a badly written password: more is hidden then. */
		if (*url.password || !strchr(text, '@'))
			check_redacted(shown, &url);
	} else {
		HOLDS(err.status == POSTROOM_INVALID && *err.text && !url.memory);
	}
	for (size_t room = 0; room < 20; room++) {
		char *small = malloc(room + 1);

		HOLDS(small);
		small[room] = 'z';
		pr_url_redact(text, small, room);
		HOLDS(small[room] == 'z');
		HOLDS(room == 0 || strncmp(small, shown, room - 1) == 0);
		free(small);
	}
	pr_url_release(&url);
	free(text);
	free(shown);
	return 0;
}
