/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor: what is wrong with the database, the sinks and the configuration, and what
 * to do about it.
 *
 * The checks are where their subject is: those of a database beside its store (store/inspect.h),
 * those of a sink in its probe (sink/sink.h), those of the configuration here. So nothing here
 * knows libpq, SQLite or a broker. The doctor decides in which order they run, and gives them
 * their time.
 */
#ifndef PR_DOCTOR_DOCTOR_H
#define PR_DOCTOR_DOCTOR_H

#include "base/stop.h"
#include "core/finding.h"
#include "relay/relay.h"
#include "store/inspect.h"

#define PR_DOCTOR_PATIENCE_MS ((int64_t)5 * 60 * 1000)

/* The admin server of the configuration. */
struct pr_doctor_admin {
	const char *listen; /* NULL: not configured */
	bool is_public;	    /* other hosts may connect */
	const char *token, *read_token;
};

struct pr_doctor_config {
	/* As a relay would run. Without `to` and sinks, only the database is checked. */
	const struct pr_relay_config *relay; /* NULL: the configuration could not be loaded */
	const struct pr_doctor_admin *admin;
	const char *file;      /* of the configuration; NULL: there is none */
	bool file_has_secrets; /* as they are, not as ${NAME} */
	const char *faults;    /* one per line; NULL: none */
	bool config_only;      /* neither the database nor a sink is touched */
	int64_t patience_ms;   /* 0: PR_DOCTOR_PATIENCE_MS */
	/* Requested: the running check ends, and it and all later ones are skipped. NULL: none. */
	const struct pr_stop *stop;
	/* See struct pr_inspection; NULL: repair nothing. */
	void (*fixed)(void *context, const char *command, const struct pr_err *err);
	void *fixed_context;
};

/*
 * Runs all checks and calls fn with each finding, those that are ok included, in the calling
 * thread. It takes a few seconds at most, opens its own connections and changes nothing
 * (unless `fixed` is set). Any number may run at once.
 */
void pr_doctor_run(const struct pr_doctor_config *config, pr_finding_fn fn, void *context);

/* config.c */
void pr_doctor_check_config(const struct pr_doctor_config *config, struct pr_checkup *checkup);
/* sinks.c */
void pr_doctor_check_sinks(const struct pr_relay_config *relay, struct pr_checkup *checkup);

#endif
