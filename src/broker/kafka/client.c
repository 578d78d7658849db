/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. The library calls back only when the client's owner polls it, in that thread. The library's
 *    own threads never use our memory.
 * 2. Settings cannot change properties that a guarantee depends on.
 * 3. No error contains the value of a property that may be a secret.
 */
#include "broker/kafka/client.h"

#include "base/time.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Before 2.0 the library did not compare the certificate's name with the broker's. */
#define HOST_CHECK "ssl.endpoint.identification.algorithm"

static pr_kafka_pair common_defaults[] = {
	{ "client.id", "postroom" },
	{ "reconnect.backoff.max.ms", "500" },
	{ "socket.keepalive.enable", "true" },
	{ NULL, NULL },
};

static pr_kafka_pair common_fixed[] = {
	{ "log.queue", "true" },
	{ NULL, NULL },
};

bool pr_kafka_is_down(const struct pr_kafka_client *client)
{
	return client->down_us && pr_mono_us() >= client->down_us + PR_KAFKA_PATIENCE_US;
}

bool pr_kafka_is_name_char(char c)
{
	char lower = (char)(c | 0x20);

	return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ||
	       (c && strchr("._-", c) != NULL);
}

bool pr_kafka_is_name(const char *name)
{
	size_t len = 0;

	while (pr_kafka_is_name_char(name[len]))
		len++;
	return len > 0 && !name[len] && len <= PR_KAFKA_NAME_MAX && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

bool pr_kafka_is_own_header(const char *name)
{
	return strncasecmp(name, "ce_", 3) == 0 || strcasecmp(name, "content-type") == 0 ||
	       strcasecmp(name, "idempotency-key") == 0;
}

int pr_kafka_check_address(const struct pr_url *url, const char *example, struct pr_err *err)
{
	if (!url->host[0])
		return pr_err_set(err, POSTROOM_SINK, "kafka needs a host, as in %s", example);
	if (url->user[0] || url->password[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "kafka: users and passwords follow the '?', as in "
				  "kafka.sasl.username=… (and kafka.security.protocol, "
				  "kafka.sasl.mechanism)");
	return POSTROOM_OK;
}

static int refuse_property(const char *name, const char *why, struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_SINK, "kafka.%.100s: %s", name, why);
}

static bool is_in(pr_kafka_pair *pairs, const char *name)
{
	while ((*pairs)[0] && strcmp((*pairs)[0], name) != 0)
		pairs++;
	return (*pairs)[0] != NULL;
}

static int check_free(const struct pr_kafka_rules *rules, const char *name, struct pr_err *err)
{
	bool taken = is_in(rules->fixed, name) || is_in(common_fixed, name) ||
		     strcmp(name, "test.mock.num.brokers") == 0;

	if (strcmp(name, "bootstrap.servers") == 0 || strcmp(name, "metadata.broker.list") == 0)
		return refuse_property(
			name, "write the brokers before the topic: kafka://HOST:PORT,…/TOPIC", err);
	for (const char *const *refused = rules->refused; *refused; refused++)
		taken = taken || strcmp(name, *refused) == 0;
	if (taken)
		return pr_err_set(err, POSTROOM_SINK, "kafka.%.100s: cannot be set, because %s",
				  name, rules->reason);
	return POSTROOM_OK;
}

static int set_property(rd_kafka_conf_t *conf, const char *name, const char *value,
			struct pr_err *err)
{
	char why[300] = "";

	if (rd_kafka_conf_set(conf, name, value, why, sizeof(why)) == RD_KAFKA_CONF_OK)
		return POSTROOM_OK;
	if (pr_url_is_secret(name))
		return refuse_property(name, "the library refuses its value", err);
	return pr_err_set(err, POSTROOM_SINK,
			  "kafka.%.100s: %s; CONFIGURATION.md of librdkafka lists all properties",
			  name, why);
}

static int set_all(rd_kafka_conf_t *conf, pr_kafka_pair *pairs, struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (; (*pairs)[0] && status == POSTROOM_OK; pairs++)
		status = set_property(conf, (*pairs)[0], (*pairs)[1], err);
	return status;
}

/* A library that was built without TLS does not know the property. */
static int check_host_names(rd_kafka_conf_t *conf, struct pr_err *err)
{
	char features[500] = "";
	size_t size = sizeof(features);

	if (set_property(conf, HOST_CHECK, "https", err) == POSTROOM_OK)
		return POSTROOM_OK;
	if (rd_kafka_conf_get(conf, "builtin.features", features, &size) == RD_KAFKA_CONF_OK &&
	    !strstr(features, "ssl"))
		return POSTROOM_OK;
	return err->status;
}

static int fill_conf(const struct pr_kafka_client *client, const struct pr_kafka_rules *rules,
		     rd_kafka_conf_t *conf, struct pr_err *err)
{
	const struct pr_param_list *given = &client->properties;
	int status = set_property(conf, "bootstrap.servers", client->url->host, err);

	if (status == POSTROOM_OK)
		status = check_host_names(conf, err);
	if (status == POSTROOM_OK)
		status = set_all(conf, common_defaults, err);
	if (status == POSTROOM_OK)
		status = set_all(conf, rules->defaults, err);
	for (size_t i = 0; i + 1 < given->count && status == POSTROOM_OK; i += 2) {
		status = check_free(rules, given->items[i], err);
		if (status == POSTROOM_OK)
			status = set_property(conf, given->items[i], given->items[i + 1], err);
	}
	if (status == POSTROOM_OK)
		status = set_all(conf, common_fixed, err);
	return status == POSTROOM_OK ? set_all(conf, rules->fixed, err) : status;
}

static void on_error(rd_kafka_t *handle, int code, const char *text, void *context)
{
	struct pr_kafka_client *client = context;

	(void)handle;
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		snprintf(client->trouble, sizeof(client->trouble), "%s", text);
	else if (client->down_us == 0)
		client->down_us = pr_mono_us();
}

static void on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	struct pr_kafka_client *client = rd_kafka_opaque(handle);

	(void)level;
	if (!client->flight)
		return;
	pr_log_event(client->flight->log, PR_LOG_DEBUG, "KAFKA");
	pr_log_str(client->flight->log, "facility", facility);
	pr_log_str(client->flight->log, "message", text);
	pr_log_end(client->flight->log);
}

int pr_kafka_client_conf(struct pr_kafka_client *client, const struct pr_kafka_rules *rules,
			 rd_kafka_conf_t **ret, struct pr_err *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	if (fill_conf(client, rules, conf, err) < 0) {
		rd_kafka_conf_destroy(conf);
		return err->status;
	}
	rd_kafka_conf_set_opaque(conf, client);
	rd_kafka_conf_set_error_cb(conf, on_error);
	rd_kafka_conf_set_log_cb(conf, on_log);
	*ret = conf;
	return POSTROOM_OK;
}

int pr_kafka_client_begin(struct pr_kafka_client *client, rd_kafka_type_t type,
			  rd_kafka_conf_t *conf, struct pr_err *err)
{
	char why[300] = "";

	client->handle = rd_kafka_new(type, conf, why, sizeof(why));
	if (!client->handle) {
		rd_kafka_conf_destroy(conf);
		return pr_err_set(err, POSTROOM_SINK, "%s", why);
	}
	rd_kafka_set_log_queue(client->handle, NULL);
	client->down_us = 0;
	client->trouble[0] = '\0';
	return POSTROOM_OK;
}
