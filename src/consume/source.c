/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/source.h"

#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct pr_source_ops *const pr_sources[] = {
	&pr_source_stdin,
#ifdef PR_WITH_KAFKA
	&pr_source_kafka,
#endif
#ifdef PR_WITH_REDIS
	&pr_source_redis,
#endif
#ifdef PR_WITH_NATS
	&pr_source_nats,
#endif
#ifdef PR_WITH_AMQP
	&pr_source_amqp,
#endif
	NULL,
};

static const struct pr_source_ops *find(const char *scheme)
{
	for (size_t i = 0; pr_sources[i]; i++) {
		for (const char *const *name = pr_sources[i]->schemes; *name; name++) {
			if (strcasecmp(*name, scheme) == 0)
				return pr_sources[i];
		}
	}
	return NULL;
}

static int unknown(const char *scheme, struct pr_err *err)
{
	char list[300] = "";
	size_t used = 0;

	if (pr_sink_left_out(scheme, err) < 0)
		return err->status;
	for (size_t i = 0; pr_sources[i] && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s:", used ? " " : "",
					 pr_sources[i]->schemes[0]);
	return pr_err_set(err, POSTROOM_SINK, "events cannot be read from \"%s:\". Known: %s",
			  scheme, list);
}

/* If no name is near the given one, the error lists all of them. */
static void add_known(const struct pr_param *params, const char *name, struct pr_err *err)
{
	char list[300] = "";
	size_t used = 0;

	if (pr_param_find(params, name) || pr_param_nearest(params, name))
		return;
	for (const struct pr_param *param = params; param->name && used < sizeof(list); param++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
					 param->name);
	pr_err_set(err, err->status, "unknown setting \"%.60s\"; %s%s", name,
		   used ? "known: " : "it has no settings", list);
}

static int set_up(struct pr_source *source, const char *url, struct pr_err *err)
{
	const struct pr_param *params = source->ops->params;
	int status;

	pr_params_defaults(params, source);
	status = pr_url_parse(url, &source->url, err);
	for (size_t i = 0; status >= 0 && i < source->url.setting_count; i++) {
		const struct pr_url_setting *setting = &source->url.settings[i];

		status = pr_params_set(params, source, setting->name, setting->value, err);
		if (status < 0) {
			add_known(params, setting->name, err);
			pr_err_prefix(err, "%s", source->ops->schemes[0]);
		}
	}
	if (status == POSTROOM_INVALID)
		status = err->status = POSTROOM_SINK;
	return status < 0 ? status : source->ops->open(source, err);
}

static void discard(struct pr_source *source)
{
	pr_url_release(&source->url);
	free(source);
}

int pr_source_open(const char *url, const char *group, int64_t lease_ms, struct pr_source **ret,
		   struct pr_err *err)
{
	const struct pr_source_ops *ops;
	struct pr_source *source;
	struct pr_random random = { 0 };
	char scheme[32];
	int status;

	if (strcmp(url, "-") == 0)
		url = "stdin:";
	/* No error repeats the rest of the URL: it may contain a password. */
	if (!strchr(url, ':'))
		return pr_err_set(err, POSTROOM_SINK,
				  "a source is written SCHEME:…, as in redis://HOST:PORT/STREAM; "
				  "there is no ':' in it");
	snprintf(scheme, sizeof(scheme), "%.*s", (int)strcspn(url, ":"), url);
	ops = find(scheme);
	if (!ops)
		return unknown(scheme, err);
	source = calloc(1, ops->size);
	if (!source)
		return pr_err_nomem(err);
	source->ops = ops;
	source->group = group;
	source->lease_ms = lease_ms;
	source->bytes = PR_SOURCE_BYTES;
	pr_uuid_v4(&random, source->consumer);
	status = set_up(source, url, err);
	if (status < 0) {
		discard(source);
		return status;
	}
	*ret = source;
	return POSTROOM_OK;
}

void pr_source_close(struct pr_source *source)
{
	if (!source)
		return;
	if (source->ops->close)
		source->ops->close(source);
	discard(source);
}
