/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. Without a token the server listens on loopback only.
 * 2. A token is kept as its digest alone.
 */
#include "admin/settings.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG(member) offsetof(struct pr_admin_config, member)

static const char *const payloads[] = { "always", "admin", "never", NULL };

const struct pr_param pr_admin_params[] = {
	{ .name = "admin",
	  .type = PR_PARAM_STRING,
	  .offset = CONFIG(listen),
	  .value = "ADDR:PORT",
	  .help = "serve probes, metrics, the API and the dashboard here" },
	{ .name = "token",
	  .type = PR_PARAM_STRING,
	  .offset = CONFIG(token),
	  .value = "TEXT",
	  .help = "requests must carry it: Authorization: Bearer TEXT" },
	{ .name = "read_token",
	  .type = PR_PARAM_STRING,
	  .offset = CONFIG(read_token),
	  .value = "TEXT",
	  .help = "the same, for requests that change nothing" },
	{ .name = "read_only",
	  .type = PR_PARAM_FLAG,
	  .offset = CONFIG(read_only),
	  .fallback = "false",
	  .help = "refuse every request that would change something" },
	{ .name = "show_payloads",
	  .type = PR_PARAM_CHOICE,
	  .offset = CONFIG(show_payloads),
	  .fallback = "always",
	  .choices = payloads,
	  .help = "who may read the content of messages" },
	{ 0 },
};

#define COUNT_LIMIT(which, member, text)                                                           \
	{                                                                                          \
		.name = which, .type = PR_PARAM_INT, .offset = CONFIG(member), .fallback = text,   \
		.min = 1, .max = 1000000000000, .help = "from so many messages on"                 \
	}
#define AGE_LIMIT(which, member, text)                                                             \
	{                                                                                          \
		.name = which, .type = PR_PARAM_PERIOD, .offset = CONFIG(member),                  \
		.fallback = text, .min = 1, .max = 36525LL * 86400000,                             \
		.help = "from this age of the oldest due message on"                               \
	}

const struct pr_param pr_health_backlog_params[] = {
	COUNT_LIMIT("degraded", backlog.degraded, "10000"),
	COUNT_LIMIT("unhealthy", backlog.unhealthy, "100000"),
	{ 0 },
};

const struct pr_param pr_health_age_params[] = {
	AGE_LIMIT("degraded", oldest_age_ms.degraded, "60s"),
	AGE_LIMIT("unhealthy", oldest_age_ms.unhealthy, "10m"),
	{ 0 },
};

const struct pr_param pr_health_dead_params[] = {
	COUNT_LIMIT("degraded", dead.degraded, "1"),
	COUNT_LIMIT("unhealthy", dead.unhealthy, "1000"),
	{ 0 },
};

static bool is_set(const char *text)
{
	return text && *text;
}

bool pr_admin_is_wanted(const struct pr_admin_config *config)
{
	return is_set(config->listen) && strcmp(config->listen, "none") != 0;
}

static int check_token(const char *name, const char *token, struct pr_err *err)
{
	for (const char *c = token; c && *c; c++) {
		if (*c <= 0x20 || *c >= 0x7f)
			return pr_err_set(err, POSTROOM_INVALID,
					  "admin.%s: a token consists of printable ASCII "
					  "characters without spaces; character %zu is another one",
					  name, (size_t)(c - token) + 1);
	}
	if (token && strlen(token) > 1024)
		return pr_err_set(err, POSTROOM_INVALID,
				  "admin.%s: a token has at most 1024 characters", name);
	return POSTROOM_OK;
}

static int check_limit(const char *name, const struct pr_admin_limit *limit, struct pr_err *err)
{
	if (limit->unhealthy >= 0 && limit->degraded > limit->unhealthy)
		return pr_err_set(err, POSTROOM_INVALID,
				  "health.%s: degraded is more than unhealthy; make one smaller or "
				  "the other larger",
				  name);
	return POSTROOM_OK;
}

int pr_admin_config_check(const struct pr_admin_config *config, struct pr_err *err)
{
	struct pr_listen_address address;

	if (check_limit("backlog", &config->backlog, err) < 0 ||
	    check_limit("oldest_age", &config->oldest_age_ms, err) < 0 ||
	    check_limit("dead", &config->dead, err) < 0 ||
	    check_token("token", config->token, err) < 0 ||
	    check_token("read_token", config->read_token, err) < 0)
		return err ? err->status : POSTROOM_INVALID;
	if (is_set(config->token) && is_set(config->read_token) &&
	    strcmp(config->token, config->read_token) == 0)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"admin.read_token: it is the same as admin.token; give it another "
			"value");
	if (!pr_admin_is_wanted(config))
		return POSTROOM_OK;
	if (pr_listen_parse(config->listen, &address, err) < 0)
		return pr_err_prefix(err, "admin.listen");
	if (!address.loopback && !is_set(config->token) && !is_set(config->read_token))
		return pr_err_set(
			err, POSTROOM_INVALID,
			"admin.listen: %s is not a loopback address, so a token is needed; "
			"set admin.token (or $POSTROOM_ADMIN_TOKEN), or listen on 127.0.0.1",
			config->listen);
	return POSTROOM_OK;
}

static bool digest(const char *text, size_t len, unsigned char out[PR_TOKEN_DIGEST])
{
	unsigned size = PR_TOKEN_DIGEST;

	return EVP_Digest(text, len, out, &size, EVP_sha256(), NULL) == 1;
}

static bool set_token(struct pr_token *token, const char *text)
{
	token->set = is_set(text);
	return !token->set || digest(text, strlen(text), token->digest);
}

bool pr_token_matches(const struct pr_token *token, const char *guess, size_t len)
{
	unsigned char guessed[PR_TOKEN_DIGEST];

	return token->set && digest(guess, len, guessed) &&
	       CRYPTO_memcmp(token->digest, guessed, sizeof(guessed)) == 0;
}

struct pr_admin_settings *pr_settings_new(const struct pr_admin_config *config)
{
	struct pr_admin_settings *settings = calloc(1, sizeof(*settings));
	struct pr_listen_address address;

	if (!settings)
		return NULL;
	atomic_init(&settings->users, 1);
	settings->listen = strdup(config->listen);
	if (!settings->listen || pr_listen_parse(config->listen, &address, NULL) < 0 ||
	    !set_token(&settings->token, config->token) ||
	    !set_token(&settings->read_token, config->read_token)) {
		pr_settings_unref(settings);
		return NULL;
	}
	memcpy(settings->host, address.host, sizeof(settings->host));
	settings->read_only = config->read_only;
	settings->show_payloads = (enum pr_admin_payloads)config->show_payloads;
	settings->backlog = config->backlog;
	settings->oldest_age_ms = config->oldest_age_ms;
	settings->dead = config->dead;
	return settings;
}

struct pr_admin_settings *pr_settings_ref(struct pr_admin_settings *settings)
{
	atomic_fetch_add(&settings->users, 1);
	return settings;
}

void pr_settings_unref(struct pr_admin_settings *settings)
{
	if (!settings || atomic_fetch_sub(&settings->users, 1) > 1)
		return;
	free(settings->listen);
	free(settings);
}
