/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a configuration that need neither a database nor a sink. */
#include "doctor/doctor.h"

#include "base/text.h"
#include "sink/sink.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void check_faults(const struct pr_doctor_config *config, struct pr_checkup *checkup)
{
	const char *at = config->faults;

	if (!pr_check_begin(checkup, "configuration", "The configuration is correct"))
		return;
	while (at && *at) {
		size_t len = strcspn(at, "\n");

		pr_found(checkup, PR_LEVEL_PROBLEM, "%.*s", (int)len, at);
		pr_found_detail(checkup,
				"A relay refuses to start with this configuration, and keeps "
				"the old one on reload.");
		pr_found_advice(checkup, "The operator corrects it; see postroom.yaml(5).");
		at += len + (at[len] == '\n');
	}
	pr_check_end(checkup);
}

/* Whether everything that the later one matches, the earlier one has matched before. */
static bool covers(const struct pr_relay_route *earlier, const struct pr_relay_route *later)
{
	if (earlier->ns && (!later->ns || strcmp(earlier->ns, later->ns) != 0))
		return false;
	if (!earlier->topic)
		return true;
	/* The stars of the later pattern are characters that only a star of the earlier one matches. */
	return pr_pattern_match(earlier->topic, later->topic ? later->topic : "*");
}

static void check_routes(const struct pr_relay_config *relay, struct pr_checkup *checkup)
{
	if (!pr_check_begin(checkup, "routes", "Every route can match a message"))
		return;
	for (size_t i = 0; i < relay->route_count; i++) {
		for (size_t before = 0; before < i; before++) {
			if (!covers(&relay->routes[before], &relay->routes[i]))
				continue;
			pr_found(checkup, PR_LEVEL_WARNING, "Route %zu never matches a message",
				 i + 1);
			pr_found_detail(
				checkup,
				"Route %zu comes first and matches everything that route %zu does, "
				"so sink \"%s\" gets nothing from it.",
				before + 1, i + 1, relay->sinks[relay->routes[i].sink].name);
			pr_found_advice(checkup,
					"The operator moves the narrower route up, or removes it.");
			break;
		}
	}
	pr_check_end(checkup);
}

static void check_unused(const struct pr_relay_config *relay, struct pr_checkup *checkup)
{
	if (!pr_check_begin(checkup, "unused-sinks", "Every sink has a route"))
		return;
	for (size_t i = 0; i < relay->sink_count; i++) {
		bool used = false;

		for (size_t n = 0; n < relay->route_count; n++)
			used = used || relay->routes[n].sink == i;
		if (used)
			continue;
		pr_found(checkup, PR_LEVEL_WARNING, "Sink \"%s\" has no route",
			 relay->sinks[i].name);
		pr_found_detail(checkup, "It never receives a message.");
		pr_found_advice(checkup, "The operator adds a route for it, or removes the sink.");
	}
	pr_check_end(checkup);
}

/* Reports a file that others may change, or read. content: the secret in it; NULL: none. */
static void check_mode(const char *path, const char *content, struct pr_checkup *checkup)
{
	bool writable, readable;
	struct stat there;

	if (stat(path, &there) < 0 || !S_ISREG(there.st_mode))
		return;
	writable = there.st_mode & S_IWOTH;
	readable = content && (there.st_mode & S_IROTH);
	if (!writable && !readable)
		return;
	pr_found(checkup, PR_LEVEL_WARNING, "All users of this host can %s %s",
		 writable ? "change" : "read", path);
	if (writable)
		pr_found_detail(checkup, "Its writers can send messages elsewhere, or run commands "
					 "as the relay.");
	else
		pr_found_detail(checkup,
				"It contains %s. Its readers can publish or read messages as the "
				"relay.",
				content);
	pr_found_advice(checkup, "The owner of the file, or root, runs the command.");
	pr_found_command(checkup, "chmod o-rwx ");
	pr_found_command_word(checkup, path);
}

static bool is_secret_file(const char *name)
{
	static const char *const names[] = {
		"key", "creds", "seed", "kafka.ssl.key.location", "kafka.sasl.oauthbearer.config",
		NULL
	};

	for (size_t i = 0; names[i]; i++) {
		if (strcmp(names[i], name) == 0)
			return true;
	}
	return false;
}

static void check_secrets(const struct pr_doctor_config *config, struct pr_checkup *checkup)
{
	const struct pr_relay_config *relay = config->relay;

	if (!pr_check_begin(checkup, "secrets", "Secrets are private"))
		return;
	if (config->file)
		check_mode(config->file, config->file_has_secrets ? "passwords" : NULL, checkup);
	for (size_t i = 0; i < relay->sink_count; i++) {
		const struct pr_relay_sink *sink = &relay->sinks[i];

		for (size_t n = 0; n < sink->setting_count; n++) {
			if (is_secret_file(sink->settings[n].name))
				check_mode(sink->settings[n].value, "a private key or credentials",
					   checkup);
		}
	}
	pr_check_end(checkup);
}

#define TOKEN_LEAST 16

static void check_token(const char *name, const char *token, struct pr_checkup *checkup)
{
	if (!token || !*token || strlen(token) >= TOKEN_LEAST)
		return;
	pr_found(checkup, PR_LEVEL_WARNING, "admin.%s has only %zu characters", name,
		 strlen(token));
	pr_found_detail(checkup, "Anyone who can connect may guess it, and then read%s messages.",
			strcmp(name, "token") == 0 ? ", retry and delete" : "");
	pr_found_advice(checkup, "The operator sets a random one, which the command prints.");
	pr_found_command(checkup, "openssl rand -hex 32");
}

/* A public address without a token is a fault: the relay refuses it. */
static void check_admin(const struct pr_doctor_admin *admin, struct pr_checkup *checkup)
{
	bool has_token = (admin->token && *admin->token) ||
			 (admin->read_token && *admin->read_token);

	if (!pr_check_begin(checkup, "admin", "The admin server is private"))
		return;
	if (admin->listen && admin->is_public && has_token) {
		pr_found(checkup, PR_LEVEL_NOTE, "Other hosts can reach the admin server on %s",
			 admin->listen);
		pr_found_detail(checkup,
				"It uses plain HTTP: anyone who can read the traffic learns the "
				"token and the messages.");
		pr_found_advice(checkup,
				"The operator sets admin.listen to a loopback address behind a "
				"proxy with TLS, or makes sure that the network is private, as "
				"inside a container.");
	}
	if (admin->listen) {
		check_token("token", admin->token, checkup);
		check_token("read_token", admin->read_token, checkup);
	}
	pr_check_end(checkup);
}

void pr_doctor_check_config(const struct pr_doctor_config *config, struct pr_checkup *checkup)
{
	if (config->file || config->faults)
		check_faults(config, checkup);
	if (!config->relay)
		return;
	if (config->relay->route_count > 0) {
		check_routes(config->relay, checkup);
		check_unused(config->relay, checkup);
	}
	check_secrets(config, checkup);
	if (config->admin)
		check_admin(config->admin, checkup);
}
