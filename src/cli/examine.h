/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a command to the doctor: doctor/ includes neither admin/ nor config/. */
#ifndef PR_CLI_EXAMINE_H
#define PR_CLI_EXAMINE_H

#include "cli/cli.h"

#include "admin/admin.h"
#include "config/config.h"
#include "doctor/doctor.h"

/* Whether the file contains a secret in plain text instead of as ${NAME}. */
bool cli_file_has_secrets(const struct pr_config *config);
/* The parts of the admin server that the doctor judges. */
void cli_describe_admin(const struct pr_admin_config *admin, struct pr_doctor_admin *ret);

#endif
