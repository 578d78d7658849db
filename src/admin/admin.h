/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin HTTP server of a relay: probes, metrics, the JSON API and the dashboard.
 *
 * It has three threads: one serves connections, one has the server's own store handle, so that a
 * slow query delays no probe, and one runs the doctor. None of them holds up a worker of the relay.
 */
#ifndef PR_ADMIN_ADMIN_H
#define PR_ADMIN_ADMIN_H

#include "base/err.h"
#include "base/param.h"
#include "base/stop.h"
#include "core/finding.h"
#include "relay/relay.h"

enum pr_admin_payloads { PR_PAYLOADS_ALWAYS, PR_PAYLOADS_ADMIN, PR_PAYLOADS_NEVER };

/* A figure is degraded from the first on, and unhealthy from the second; < 0: never. */
struct pr_admin_limit {
	int64_t degraded, unhealthy;
};

/*
 * Runs the checks of `postroom doctor` and calls fn with each finding. In a thread of its own, one
 * call at a time. It ends soon after a stop was requested.
 */
typedef void (*pr_admin_doctor_fn)(void *context, const struct pr_stop *stop, pr_finding_fn fn,
				   void *fn_context);

struct pr_admin_config {
	const char *listen; /* ADDR:PORT; NULL or "none": do not serve */
	const char *token;  /* NULL or "": none */
	const char *read_token;
	bool read_only;
	int64_t show_payloads; /* enum pr_admin_payloads */
	struct pr_admin_limit backlog, oldest_age_ms, dead;
	pr_admin_doctor_fn doctor; /* until pr_admin_close(); a reload does not change it */
	void *doctor_context;
};

/* Of struct pr_admin_config: admin: in the configuration, and three maps of health:. */
extern const struct pr_param pr_admin_params[];
extern const struct pr_param pr_health_backlog_params[];
extern const struct pr_param pr_health_age_params[];
extern const struct pr_param pr_health_dead_params[];

bool pr_admin_is_wanted(const struct pr_admin_config *config);
/* POSTROOM_INVALID: a wrong address or token, or a public address without a token. */
int pr_admin_config_check(const struct pr_admin_config *config, struct pr_err *err);

struct pr_admin;

/*
 * Listens and serves, from pr_relay_make() on. The address must be free: POSTROOM_INVALID. Of host
 * the database and the log count; all strings are copied.
 */
int pr_admin_open(const struct pr_admin_config *config, const struct pr_relay_config *host,
		  struct pr_relay *relay, struct pr_admin **ret, struct pr_err *err);

/*
 * Another configuration from now on; the address stays. From one thread at a time. Requests that
 * are being served finish by the old configuration.
 */
int pr_admin_reload(struct pr_admin *admin, const struct pr_admin_config *config,
		    struct pr_err *err);
/* As it was given. From the thread that reloads. */
const char *pr_admin_address(const struct pr_admin *admin);

/* Before pr_relay_close(). Ends all connections. */
void pr_admin_close(struct pr_admin *admin);

#endif
