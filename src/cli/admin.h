/* SPDX-License-Identifier: Apache-2.0 */
/* The admin server of the commands that have workers: configuration, start and reload. */
#ifndef PR_CLI_ADMIN_H
#define PR_CLI_ADMIN_H

#include "cli/cli.h"

#include "admin/admin.h"
#include "config/config.h"

struct cli_admin {
	struct pr_admin_config config;
	const char *listen; /* --admin */
};

#define CLI_ADMIN_PARAM(OPTION)                                                                    \
	{                                                                                          \
		.name = "admin", .type = PR_PARAM_STRING, .offset = OPTION(listen),                \
		.value = "ADDR:PORT",                                                              \
		.help = "serve probes, metrics, the API and the dashboard over HTTP; an address "  \
			"other than loopback requires a token; none turns the server off"          \
	}

/*
 * cmd_relay.c: the configuration of a relay, from the file and the environment; `to`, if not NULL,
 * replaces its sinks. Conflicting values are reported in faults and are not a failure. The strings
 * live as long as `loaded`, which pr_config_free() frees.
 */
struct cli_loaded_relay {
	struct pr_relay_config relay;
	struct pr_admin_config admin;
	struct pr_config *loaded;
};
int cli_load_relay(struct cli *cli, const char *to, struct cli_loaded_relay *ret,
		   struct pr_faults *faults, struct pr_err *err);

/* The sections of the configuration file, and a terminator. */
#define CLI_ADMIN_SECTIONS 5
void cli_admin_sections(struct cli_admin *admin, struct pr_config_section ret[CLI_ADMIN_SECTIONS]);
/* Checks that the values are consistent. */
void cli_admin_check(const struct cli_admin *admin, const struct pr_config *loaded,
		     struct pr_faults *faults);

/* Opens a server if one is configured; otherwise *ret is NULL. */
int cli_admin_open(const struct cli_admin *admin, const struct pr_relay_config *host,
		   struct pr_relay *relay, struct pr_admin **ret, struct pr_err *err);
/* After a reload; server may be NULL. Logs settings that cannot change while it runs. */
int cli_admin_reload(const struct cli_admin *admin, struct pr_admin *server, struct pr_log *log,
		     struct pr_err *err);

#endif
