/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a claim, shared by claim.c, claim_path.c and lane.c. */
#ifndef PR_STORE_PGSQL_CLAIM_H
#define PR_STORE_PGSQL_CLAIM_H

#include "store/pgsql/statements.h"

/* A claim that runs, and the batch that it fills. */
struct pgsql_claiming {
	struct pgsql_store *store;
	const struct pr_table *table;
	const struct pr_claim *claim;
	struct postroom_batch *batch;
};

/* The claim of one path. */
struct pgsql_path_claim {
	enum pgsql_path path;
	int32_t limit;
	int64_t min_attempts; /* of expired leases */
	const char *reason;   /* the error of dead letters */
	const char *topic;    /* the pattern as LIKE expects it */
	int64_t begun_us;
	int64_t found; /* out: how many messages were found, claimed or not */
	struct pr_buf pattern;
	struct pr_buf resume_seqs, resume_epochs;
	struct pgsql_params params;
	struct pgsql_step step;
};

/* The bytes that the claim may receive. */
int64_t pr_pgsql_max_bytes(const struct pr_claim *claim);

/* Chooses the statement of a path and binds its parameters. Path and limit are set. */
int pr_pgsql_build_path_claim(const struct pgsql_claiming *claiming,
			      struct pgsql_path_claim *path_claim, struct pr_err *err);
/* Adds the result of the step to the batch, and learns from it where to resume. */
int pr_pgsql_add_to_batch(const struct pgsql_claiming *claiming,
			  struct pgsql_path_claim *path_claim, struct pr_err *err);
/* Both, and the statement itself. */
int pr_pgsql_run_path(const struct pgsql_claiming *claiming, struct pgsql_path_claim *path_claim,
		      struct pr_err *err);
void pr_pgsql_release_path_claim(struct pgsql_path_claim *path_claim);

/* The same two parts for the path of the lanes: lane.c. */
const struct pgsql_sql *pr_pgsql_bind_lanes(const struct pgsql_claiming *claiming,
					    struct pgsql_path_claim *path_claim);
void pr_pgsql_learn_lanes(struct pgsql_store *store, const struct pgsql_path_claim *path_claim,
			  const PGresult *result, size_t count);

#endif
