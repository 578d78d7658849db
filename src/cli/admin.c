/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/admin.h"

#include <stdio.h>
#include <string.h>

void cli_admin_sections(struct cli_admin *admin, struct pr_config_section ret[CLI_ADMIN_SECTIONS])
{
	struct pr_admin_config *config = &admin->config;

	ret[0] = (struct pr_config_section){ "admin", pr_admin_params, admin->listen, config };
	ret[1] = (struct pr_config_section){ "health.backlog", pr_health_backlog_params, NULL,
					     config };
	ret[2] = (struct pr_config_section){ "health.oldest_age", pr_health_age_params, NULL,
					     config };
	ret[3] = (struct pr_config_section){ "health.dead", pr_health_dead_params, NULL, config };
	ret[4] = (struct pr_config_section){ 0 };
}

void cli_admin_check(const struct cli_admin *admin, const struct pr_config *loaded,
		     struct pr_faults *faults)
{
	struct pr_err err = { 0 };
	char path[40];
	const char *where;

	if (pr_admin_config_check(&admin->config, &err) >= 0)
		return;
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(err.text, ":"), err.text);
	where = pr_config_where(loaded, path);
	if (!where || strcmp(where, "default") == 0)
		pr_fault(faults, "%s", err.text);
	else if (strcmp(where, "--admin") == 0)
		pr_fault(faults, "--admin%s", err.text + strcspn(err.text, ":"));
	else
		pr_fault(faults, "%s: %s", where, err.text);
}

int cli_admin_open(const struct cli_admin *admin, const struct pr_relay_config *host,
		   struct pr_relay *relay, struct pr_admin **ret, struct pr_err *err)
{
	if (!pr_admin_is_wanted(&admin->config))
		return POSTROOM_OK;
	return pr_admin_open(&admin->config, host, relay, ret, err);
}

int cli_admin_reload(const struct cli_admin *admin, struct pr_admin *server, struct pr_log *log,
		     struct pr_err *err)
{
	bool wanted = pr_admin_is_wanted(&admin->config);

	if (wanted != (server != NULL) ||
	    (server && strcmp(pr_admin_address(server), admin->config.listen) != 0)) {
		pr_log_box(log, PR_LOG_WARN, "RELOAD_KEPT");
		pr_log_str(log, "settings", "admin.listen");
		pr_log_str(log, "advice", "restart the relay to change them");
		pr_log_end(log);
	}
	return server ? pr_admin_reload(server, &admin->config, err) : POSTROOM_OK;
}
