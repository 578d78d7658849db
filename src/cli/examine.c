/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/examine.h"

#include "admin/settings.h"

#include <stdio.h>
#include <string.h>

/* Whether the file contains a secret in plain text instead of as ${NAME}. */
static bool has_secret(const struct pr_config_value *value, const char *text)
{
	for (; value; value = value->next) {
		if (value->text && value->shown && strcmp(value->text, value->shown) != 0 &&
		    strstr(text, value->text))
			return true;
	}
	return false;
}

bool cli_file_has_secrets(const struct pr_config *config)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	FILE *file = config->file ? fopen(config->file, "re") : NULL;
	char part[4096];
	bool found = false;
	size_t len;

	if (!file)
		return false;
	while ((len = fread(part, 1, sizeof(part), file)) > 0)
		pr_buf_append(&text, part, len);
	fclose(file);
	found = has_secret(config->database, pr_buf_text(&text)) ||
		has_secret(config->values, pr_buf_text(&text)) ||
		has_secret(config->section_values, pr_buf_text(&text));
	for (size_t i = 0; i < config->sink_count; i++)
		found = found || has_secret(config->sink_parts[i].values, pr_buf_text(&text));
	return found;
}

static bool is_public(const struct pr_admin_config *admin)
{
	struct pr_listen_address address;

	return pr_admin_is_wanted(admin) && pr_listen_parse(admin->listen, &address, NULL) >= 0 &&
	       !address.loopback;
}

void cli_describe_admin(const struct pr_admin_config *admin, struct pr_doctor_admin *ret)
{
	*ret = (struct pr_doctor_admin){
		.listen = pr_admin_is_wanted(admin) ? admin->listen : NULL,
		.is_public = is_public(admin),
		.token = admin->token,
		.read_token = admin->read_token,
	};
}
