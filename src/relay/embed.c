/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <postroom/relay.h>: the relay embedded in another program.
 *
 * 1. It prints nothing, touches no signal, and keeps no state outside of the handle.
 * 2. Everything that the options point to is copied, except for the contexts: the caller may free
 *    it as soon as the relay is open.
 */
#include "relay/relay.h"

#include "base/arena.h"
#include "relay/meter.h"

#include <postroom/relay.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Size of the options in the first version; later fields follow. */
#define FIRST_SIZE (offsetof(postroom_relay_options, inbox_retention_ms) + sizeof(int64_t))

#define DAY_MS 86400000LL
#define RETENTION_MAX_MS (36525 * DAY_MS)

struct postroom_relay {
	struct pr_relay *relay; /* NULL: it could not be opened; only the error text is valid */
	struct pr_arena strings;
	postroom_log_fn log;
	void *log_context;
	bool ran;
	struct pr_err err;
};

/* One numeric option: its default for 0, and its range. */
struct number {
	const char *name;
	int64_t given;
	int64_t fallback; /* 0: pr_relay_config_check() sets it */
	int64_t min, max;
	int64_t *into;
};

static int read_number(const struct number *number, struct pr_err *err)
{
	int64_t value = number->given ? number->given : number->fallback;

	if (number->given && (value < number->min || value > number->max))
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: %s is %lld; it must be between %lld and %lld, or 0 for "
				  "the default",
				  number->name, (long long)value, (long long)number->min,
				  (long long)number->max);
	*number->into = value;
	return POSTROOM_OK;
}

static int read_numbers(const postroom_relay_options *given, struct pr_relay_config *config,
			struct pr_err *err)
{
	int64_t attempts, length;
	const struct number numbers[] = {
		{ "workers", given->workers, 2, 1, 256, &config->workers },
		{ "batch_size", given->batch_size, 500, 1, 10000, &config->batch_size },
		{ "lease_ms", given->lease_ms, 30000, 30, DAY_MS, &config->lease_ms },
		{ "poll_interval_ms", given->poll_interval_ms, 0, 1, DAY_MS,
		  &config->poll_interval_ms },
		{ "publish_timeout_ms", given->publish_timeout_ms, 0, 1, DAY_MS,
		  &config->publish_timeout_ms },
		{ "shutdown_grace_ms", given->shutdown_grace_ms, 20000, 1, DAY_MS,
		  &config->shutdown_grace_ms },
		{ "max_attempts", given->max_attempts, 10, 1, 1000000, &attempts },
		{ "base_delay_ms", given->base_delay_ms, 1000, 1, 30 * DAY_MS,
		  &config->policy.base_delay_ms },
		{ "max_delay_ms", given->max_delay_ms, 300000, 1, 30 * DAY_MS,
		  &config->policy.max_delay_ms },
		{ "max_error_length", given->max_error_length, 2000, 1, 100000, &length },
		{ "retention_ms", given->retention_ms, 7 * DAY_MS, POSTROOM_AT_ONCE,
		  RETENTION_MAX_MS, &config->retention_ms },
		{ "dedupe_retention_ms", given->dedupe_retention_ms, 30 * DAY_MS, POSTROOM_NEVER,
		  RETENTION_MAX_MS, &config->dedupe_retention_ms },
		{ "inbox_retention_ms", given->inbox_retention_ms, 30 * DAY_MS, POSTROOM_NEVER,
		  RETENTION_MAX_MS, &config->inbox_retention_ms },
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int status = read_number(&numbers[i], err);

		if (status < 0)
			return status;
	}
	config->policy.max_attempts = (int32_t)attempts;
	config->policy.max_error_length = (int32_t)length;
	if (config->retention_ms == POSTROOM_AT_ONCE)
		config->retention_ms = 0;
	config->policy.forget = config->retention_ms == 0;
	config->dead_retention_ms = -1;
	return POSTROOM_OK;
}

static int copy_string(postroom_relay *relay, const char *given, const char **ret)
{
	*ret = given ? pr_arena_strdup(&relay->strings, given) : NULL;
	return given && !*ret ? pr_err_nomem(&relay->err) : POSTROOM_OK;
}

static int read_strings(postroom_relay *relay, const postroom_relay_options *given,
			struct pr_relay_config *config)
{
	char tenant[PR_UUID_SIZE];

	if (given->tenant_id && !pr_uuid_normalize(given->tenant_id, tenant))
		return pr_err_set(&relay->err, POSTROOM_INVALID,
				  "relay: tenant_id \"%.60s\" is not a UUID", given->tenant_id);
	if (copy_string(relay, given->url, &config->url) < 0 ||
	    copy_string(relay, given->schema, &config->schema) < 0 ||
	    copy_string(relay, given->ns, &config->scope.ns) < 0 ||
	    copy_string(relay, given->topic, &config->scope.topic) < 0 ||
	    copy_string(relay, given->tenant_id ? tenant : NULL, &config->scope.tenant_id) < 0)
		return relay->err.status;
	return POSTROOM_OK;
}

static void forward_log_event(void *context, enum pr_log_level level, const char *event,
			      const char *fields)
{
	const postroom_relay *relay = context;

	relay->log(relay->log_context, (postroom_log_level)((int)level - PR_LOG_INFO), event,
		   fields);
}

static void set_log(postroom_relay *relay, const postroom_relay_options *given,
		    struct pr_relay_config *config)
{
	config->log_level = PR_LOG_OFF;
	if (!given->log)
		return;
	relay->log = given->log;
	relay->log_context = given->log_context;
	config->log = forward_log_event;
	config->log_context = relay;
	config->log_level = (enum pr_log_level)((int)given->log_level + PR_LOG_INFO);
}

/* The application may have been compiled with another version of the header. */
static int read_options(const postroom_relay_options *given, postroom_relay_options *ret,
			struct pr_err *err)
{
	const char *bytes = (const char *)given;

	if (given->size < FIRST_SIZE)
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: size must be sizeof(postroom_relay_options): use "
				  "POSTROOM_RELAY()");
	for (size_t i = sizeof(*ret); i < given->size; i++) {
		if (bytes[i])
			return pr_err_set(
				err, POSTROOM_INVALID,
				"relay: an option is set that only a newer version of "
				"the library knows: install that, or leave the option out");
	}
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, given, given->size < sizeof(*ret) ? given->size : sizeof(*ret));
	return POSTROOM_OK;
}

static int check_shape(const postroom_relay_options *given, struct pr_err *err)
{
	if (!given->url)
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: url is missing, for example \"sqlite:shop.db\"");
	if (!given->publish)
		return pr_err_set(
			err, POSTROOM_INVALID,
			"relay: publish is missing: set the function that receives the messages");
	if (given->log_level < POSTROOM_LOG_DEBUG || given->log_level > POSTROOM_LOG_ERROR)
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: log_level is %d; use one of POSTROOM_LOG_…",
				  (int)given->log_level);
	if ((unsigned)given->backoff > POSTROOM_BACKOFF_CONSTANT)
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: backoff is %d; use one of POSTROOM_BACKOFF_…",
				  (int)given->backoff);
	if ((unsigned)given->on_dead > POSTROOM_ON_DEAD_BLOCK)
		return pr_err_set(err, POSTROOM_INVALID,
				  "relay: on_dead is %d; use one of POSTROOM_ON_DEAD_…",
				  (int)given->on_dead);
	return POSTROOM_OK;
}

static int build_relay(postroom_relay *relay, const postroom_relay_options *given)
{
	struct pr_err *err = &relay->err;
	struct pr_relay_config config = { 0 };
	int status = check_shape(given, err);

	if (status >= 0)
		status = read_numbers(given, &config, err);
	if (status >= 0)
		status = read_strings(relay, given, &config);
	if (status < 0)
		return status;
	config.callback = (struct pr_callback){ given->publish, given->context };
	config.policy.backoff = given->backoff;
	config.policy.block = given->on_dead == POSTROOM_ON_DEAD_BLOCK;
	config.drain = given->drain != 0;
	set_log(relay, given, &config);
	if (pr_relay_config_check(&config, err) < 0)
		return pr_err_prefix(err, "relay");
	status = pr_relay_make(&config, &relay->relay, err);
	if (status < 0)
		return status;
	status = pr_relay_try(relay->relay, err);
	if (status == POSTROOM_UNAVAILABLE && !pr_store_is_embedded(config.url))
		return POSTROOM_OK;
	if (status < 0) {
		pr_relay_close(relay->relay);
		relay->relay = NULL;
	}
	return status;
}

int postroom_relay_open(const postroom_relay_options *options, postroom_relay **ret)
{
	postroom_relay *relay = calloc(1, sizeof(*relay));
	postroom_relay_options known;
	int status;

	*ret = relay;
	if (!relay)
		return POSTROOM_NOMEM;
	status = read_options(options, &known, &relay->err);
	if (status >= 0)
		status = build_relay(relay, &known);
	if (status >= 0)
		pr_err_clear(&relay->err);
	return status;
}

int postroom_relay_run(postroom_relay *relay)
{
	int status;

	if (!relay->relay)
		return relay->err.status;
	pr_err_clear(&relay->err);
	if (relay->ran)
		return pr_err_set(&relay->err, POSTROOM_INVALID,
				  "relay: it has run already; open another one");
	relay->ran = true;
	status = pr_relay_ready(relay->relay, &relay->err);
	if (status >= 0)
		status = pr_relay_run(relay->relay, &relay->err);
	if (status == POSTROOM_STOPPED)
		status = POSTROOM_OK;
	if (status >= 0)
		pr_err_clear(&relay->err);
	return status;
}

void postroom_relay_stop(postroom_relay *relay)
{
	if (relay->relay)
		pr_relay_stop(relay->relay);
}

void postroom_relay_totals(postroom_relay *relay, postroom_totals *ret)
{
	struct pr_relay_totals totals = { 0 };

	if (relay->relay)
		pr_relay_totals(relay->relay, &totals);
	*ret = (postroom_totals){
		.fetched = totals.fetched,
		.delivered = totals.delivered,
		.failed = totals.failed,
		.dead = totals.dead,
		.lost = totals.lost,
	};
}

int postroom_relay_metrics(postroom_relay *relay, char *text, size_t size, size_t *ret_needed)
{
	PR_CLEANUP_BUF struct pr_buf buf = { 0 };

	if (size > 0)
		text[0] = '\0';
	if (ret_needed)
		*ret_needed = 0;
	if (!relay->relay)
		return relay->err.status;
	/* The embedding program has metrics of its process itself. */
	if (pr_metrics_write_part(relay->relay, &buf, false, false) < 0)
		return POSTROOM_NOMEM;
	if (ret_needed)
		*ret_needed = buf.len + 1;
	if (buf.len >= size)
		return POSTROOM_NOMEM;
	memcpy(text, buf.data, buf.len + 1);
	return POSTROOM_OK;
}

const char *postroom_relay_errmsg(const postroom_relay *relay)
{
	return relay ? relay->err.text : "out of memory";
}

void postroom_relay_close(postroom_relay *relay)
{
	if (!relay)
		return;
	pr_relay_close(relay->relay);
	pr_arena_release(&relay->strings);
	free(relay);
}
