/* SPDX-License-Identifier: Apache-2.0 */
#include "base/url.h"

#include "base/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The parts of a URL as written in its text. */
struct parts {
	const char *scheme, *scheme_end;
	const char *user, *user_end;
	const char *password, *password_end;
	const char *host, *host_end;
	const char *path, *path_end;
	const char *settings; /* NULL: none */
};

static bool is_letter(char c)
{
	return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_port_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t scheme_length(const char *text)
{
	size_t len = 0;

	while (is_letter(text[len]) ||
	       (len > 0 && (is_port_digit(text[len]) || (text[len] && strchr("+-.", text[len])))))
		len++;
	return text[len] == ':' ? len : 0;
}

static const char *find_last(const char *start, const char *end, char c)
{
	return memrchr(start, c, (size_t)(end - start));
}

static void split_authority(const char *start, const char *end, struct parts *parts)
{
	const char *at = find_last(start, end, '@');
	const char *colon;

	parts->host = start;
	parts->host_end = end;
	if (!at)
		return;
	parts->host = at + 1;
	colon = memchr(start, ':', (size_t)(at - start));
	parts->user = start;
	parts->user_end = colon ? colon : at;
	if (colon) {
		parts->password = colon + 1;
		parts->password_end = at;
	}
}

static bool split(const char *text, struct parts *parts)
{
	size_t scheme_len = scheme_length(text);
	const char *rest = text + scheme_len + 1;
	const char *end, *slash;

	*parts = (struct parts){
		.scheme = text,
		.scheme_end = text + scheme_len,
		.user = text,
		.user_end = text,
		.password = text,
		.password_end = text,
		.host = text,
		.host_end = text,
	};
	if (scheme_len == 0)
		return false;
	end = rest + strcspn(rest, "?");
	if (*end)
		parts->settings = end + 1;
	parts->path = rest;
	parts->path_end = end;
	if (strncmp(rest, "//", 2) == 0) {
		rest += 2;
		slash = memchr(rest, '/', (size_t)(end - rest));
		split_authority(rest, slash ? slash : end, parts);
		/* An empty authority leaves the leading slash in the path: file:///tmp/x is /tmp/x.
		 */
		parts->path = !slash ? end : slash == rest ? slash : slash + 1;
	}
	return true;
}

/* Decodes a part to *to and moves *to past its NUL. Returns the part, or NULL and *ret_why. */
static char *decode(const char *start, const char *end, char **to, const char **ret_why)
{
	char *decoded = *to;

	while (start < end) {
		int high, low;

		if (*start != '%') {
			*(*to)++ = *start++;
			continue;
		}
		high = end - start > 2 ? pr_hex_value(start[1]) : -1;
		low = high >= 0 ? pr_hex_value(start[2]) : -1;
		if (low < 0) {
			*ret_why = "'%' must be followed by two hex digits; write %25 for a "
				   "percent sign";
			return NULL;
		}
		if (high == 0 && low == 0) {
			*ret_why = "%00 is not allowed";
			return NULL;
		}
		*(*to)++ = (char)(high * 16 + low);
		start += 3;
	}
	*(*to)++ = '\0';
	return decoded;
}

static char *copy(const char *start, const char *end, char **to)
{
	char *copied = *to;

	memcpy(copied, start, (size_t)(end - start));
	*to += end - start;
	*(*to)++ = '\0';
	return copied;
}

static bool decode_settings(const char *at, struct pr_url *url, char **to, const char **ret_why)
{
	while (*at) {
		const char *end = at + strcspn(at, "&");
		const char *equals = memchr(at, '=', (size_t)(end - at));
		struct pr_url_setting *setting = &url->settings[url->setting_count];

		if (end == at) {
			at++;
			continue;
		}
		if (equals == at) {
			*ret_why = "a setting after '?' has no name";
			return false;
		}
		setting->name = decode(at, equals ? equals : end, to, ret_why);
		setting->value = setting->name ? decode(equals ? equals + 1 : end, end, to, ret_why)
					       : NULL;
		if (!setting->value)
			return false;
		url->setting_count++;
		at = *end ? end + 1 : end;
	}
	return true;
}

static size_t count_settings(const char *settings)
{
	size_t count = settings ? 1 : 0;

	for (; settings && *settings; settings++)
		count += *settings == '&';
	return count;
}

static bool fill(const struct parts *parts, struct pr_url *url, char *to, const char **ret_why)
{
	url->scheme = copy(parts->scheme, parts->scheme_end, &to);
	for (char *c = url->scheme; *c; c++) {
		if (is_letter(*c))
			*c |= 0x20;
	}
	url->host = copy(parts->host, parts->host_end, &to);
	url->user = decode(parts->user, parts->user_end, &to, ret_why);
	url->password = decode(parts->password, parts->password_end, &to, ret_why);
	url->raw_path = copy(parts->path, parts->path_end, &to);
	url->path = decode(parts->path, parts->path_end, &to, ret_why);
	if (!url->user || !url->password || !url->path)
		return false;
	return !parts->settings || decode_settings(parts->settings, url, &to, ret_why);
}

static int refuse_url(const char *text, const char *why, struct pr_err *err)
{
	char shown[200];

	pr_url_redact(text, shown, sizeof(shown));
	return pr_err_set(err, POSTROOM_INVALID, "\"%s\" is not a URL: %s", shown, why);
}

int pr_url_parse(const char *text, struct pr_url *url, struct pr_err *err)
{
	struct parts parts;
	const char *why = NULL;
	size_t count, nuls, size;

	*url = (struct pr_url){ 0 };
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return refuse_url(text, "it contains a control character", err);
	}
	if (!split(text, &parts))
		return refuse_url(text, "it must begin with a scheme and a colon, like \"file:\"",
				  err);

	/* Decoding never makes a part longer, so its length and a NUL suffice. The path is stored
	 * twice. */
	count = count_settings(parts.settings);
	nuls = 6 + 2 * count;
	size = strlen(text) + (size_t)(parts.path_end - parts.path) + nuls;
	url->memory = calloc(1, count * sizeof(*url->settings) + size);
	if (!url->memory)
		return pr_err_nomem(err);
	url->settings = (struct pr_url_setting *)(void *)url->memory;
	if (fill(&parts, url, url->memory + count * sizeof(*url->settings), &why))
		return POSTROOM_OK;
	pr_url_release(url);
	return refuse_url(text, why, err);
}

void pr_url_release(struct pr_url *url)
{
	free(url->memory);
	*url = (struct pr_url){ 0 };
}

struct shown {
	char *out;
	size_t size;
	size_t used;
};

static void show(struct shown *shown, const char *start, const char *end)
{
	size_t len = (size_t)(end - start);

	if (shown->size - 1 - shown->used < len)
		len = shown->size - 1 - shown->used;
	memcpy(shown->out + shown->used, start, len);
	shown->used += len;
}

static void show_secret(struct shown *shown)
{
	static const char stars[] = "***";

	show(shown, stars, stars + 3);
}

static bool is_secret(const char *name, const char *end)
{
	/* A header may be an Authorization, a proxy URL has its own password, and a query may have
	 * a token. */
	static const char *const words[] = { "passw", "secret", "token",       "header",
					     "proxy", ".pem",	"oauthbearer", "query" };

	for (; name < end; name++) {
		for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
			if (strncasecmp(name, words[i], strlen(words[i])) == 0)
				return true;
		}
	}
	return false;
}

bool pr_url_is_secret(const char *name)
{
	return is_secret(name, name + strlen(name));
}

/* Returns where the URL of a web server begins in a word: at its start or after a '='; or NULL. */
static const char *find_web(const char *text)
{
	for (const char *at = text; at; at = strchr(at, '=')) {
		at += *at == '=';
		if (strncasecmp(at, "http://", 7) == 0 || strncasecmp(at, "https://", 8) == 0)
			return at;
	}
	return NULL;
}

/* Returns the length of a template field, as in {topic}; 0: there is none. */
static size_t field_length(const char *at)
{
	static const char *const fields[] = { "{topic}", "{namespace}", "{tenant}", "{key}" };

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (strncmp(at, fields[i], strlen(fields[i])) == 0)
			return strlen(fields[i]);
	}
	return 0;
}

/* Returns how many bytes of a path (up to '?') may be shown here: a field, a slash; 0: hidden. */
static size_t shown_length(const char *at)
{
	return *at == '/' ? 1 : field_length(at);
}

/*
 * Returns the '@' after a password, or NULL. A password with an unescaped '/' or '?' makes an
 * invalid URL, and its error message must not show the password either. So the '@' may be anywhere,
 * unless a port follows the colon.
 */
static const char *password_end(const char *colon, const char *authority_end)
{
	const char *at = find_last(colon, authority_end, '@');
	const char *port = colon + 1;

	if (at)
		return at;
	while (port < authority_end && (is_port_digit(*port) || *port == ',' || *port == ':'))
		port++;
	return port == authority_end ? NULL : strrchr(authority_end, '@');
}

/* Shows everything before the settings, and returns where it stopped. */
static const char *show_target(struct shown *shown, const char *text)
{
	const char *rest = strstr(text, "://");
	const char *authority_end, *colon, *at;

	if (!rest)
		return text;
	rest += 3;
	authority_end = rest + strcspn(rest, "/?");
	colon = memchr(rest, ':', (size_t)(authority_end - rest));
	at = find_last(rest, authority_end, '@');
	/* For NATS, a user without a password is a token. */
	if (at && (!colon || colon > at) && strncasecmp(text, "nats:", 5) == 0) {
		show(shown, text, rest);
		show_secret(shown);
		return at;
	}
	at = colon ? password_end(colon, authority_end) : NULL;
	if (!at)
		return text;
	show(shown, text, colon + 1);
	show_secret(shown);
	return at;
}

/* The path of a web server may be secret: only its fields and slashes are shown. */
static const char *show_path(struct shown *shown, const char *at)
{
	const char *path = at + strcspn(at, "/?");

	show(shown, at, path);
	for (at = path; *at && *at != '?';) {
		size_t len = shown_length(at);

		show(shown, at, at + len);
		at += len;
		if (len > 0)
			continue;
		show_secret(shown);
		while (*at && *at != '?' && shown_length(at) == 0)
			at++;
	}
	return at;
}

void pr_url_redact(const char *text, char *out, size_t size)
{
	struct shown shown = { .out = out, .size = size };
	const char *rest, *at;

	if (size == 0)
		return;
	rest = show_target(&shown, text);
	if (find_web(text) == text) {
		if (rest == text) {
			rest = strstr(text, "://") + 3;
			show(&shown, text, rest);
		}
		at = show_path(&shown, rest);
	} else {
		at = rest + strcspn(rest, "?");
		show(&shown, rest, at);
	}
	while (*at) {
		const char *end = at + 1 + strcspn(at + 1, "&");
		const char *equals = memchr(at, '=', (size_t)(end - at));

		if (equals && is_secret(at, equals)) {
			show(&shown, at, equals + 1);
			show_secret(&shown);
		} else {
			show(&shown, at, end);
		}
		at = end;
	}
	out[shown.used] = '\0';
}

static void hide_path(char *web)
{
	char *at = strstr(web, "://") + 3;

	at += strcspn(at, "/?");
	while (*at && *at != '?') {
		size_t len = shown_length(at);

		if (len == 0)
			*at = '*';
		at += len > 0 ? len : 1;
	}
}

void pr_url_hide(char *text)
{
	char *user = strstr(text, "://"), *host = user ? strrchr(user, '@') : NULL;
	const char *web = find_web(text);
	const char *settings = strchr(text, '?');
	char *end;

	if (host)
		memset(user + 3, '*', (size_t)(host - user - 3));
	if (web)
		hide_path(text + (web - text));
	for (char *name = text; *name; name = *end ? end + 1 : end) {
		/* Outside of a URL's settings, the end of a quoted value is unknown. */
		bool setting = settings && name > settings;
		char *equals = name + strcspn(name, setting ? "=&" : "=?& ");

		end = equals + strcspn(equals, setting ? "&" : "?& ");
		if (*equals == '=' && is_secret(name, equals)) {
			if (!setting)
				end = equals + strlen(equals);
			memset(equals + 1, '*', (size_t)(end - equals - 1));
		}
	}
}
