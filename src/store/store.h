/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a database must be able to do. A store is one file and one line in the
 * array of store.c; contract/store.c runs over every one of them.
 *
 * Every function returns a status and fills err; what it hands out is left
 * untouched on failure. A store is used by one thread at a time.
 */
#ifndef PR_STORE_STORE_H
#define PR_STORE_STORE_H

#include "base/err.h"
#include "base/stop.h"
#include "base/uuid.h"
#include "core/batch.h"
#include "core/message.h"
#include "store/table.h"

#include <stdbool.h>

struct pr_store_config {
	const char *url;
	bool create;		     /* make the file if there is none */
	int64_t busy_wait_ms;	     /* how long to wait for a lock; < 0: for ever, until stop */
	const struct pr_stop *stop;  /* ends waits; NULL: nobody stops us */
};

struct pr_scope {
	const char *ns;	   /* NULL: any, as the others */
	const char *topic; /* pattern */
	const char *tenant_id;
};

struct pr_claim {
	struct pr_scope scope;
	int32_t limit;
	size_t max_bytes;
	int64_t lease_ms;
	int32_t max_attempts;
	bool suspects; /* look for expired leases first; one of them comes alone */
};

struct pr_migration {
	int version;
	const char *name;
	const char *sql;
};

typedef void (*pr_migration_fn)(void *context, const struct pr_migration *migration,
				int64_t applied_at_us, const char *applied_by);

struct pr_store_ops {
	const char *const *schemes; /* ends in NULL */

	int (*open)(const struct pr_store_config *config, struct postroom_store **ret,
		    struct pr_err *err);
	void (*close)(struct postroom_store *store);

	/* Applies what is missing; calls fn for each migration applied now. */
	int (*migrate)(struct postroom_store *store, pr_migration_fn fn, void *context,
		       struct pr_err *err);
	/* Calls fn for every known migration; applied_at_us is 0 for those still missing. */
	int (*migrations)(struct postroom_store *store, pr_migration_fn fn, void *context,
			  struct pr_err *err);
	/* POSTROOM_SCHEMA unless exactly the known migrations are there. */
	int (*check_schema)(struct postroom_store *store, struct pr_err *err);

	/* A transaction on the store's own connection, and the application's view of that connection. */
	int (*begin)(struct postroom_store *store, struct pr_err *err);
	int (*commit)(struct postroom_store *store, struct pr_err *err);
	void (*rollback)(struct postroom_store *store);
	postroom_box *(*box)(struct postroom_store *store);

	int (*claim)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_claim *claim, struct postroom_batch *batch,
		     struct pr_err *err);
	/* Each sets the items' settled; POSTROOM_LEASE_LOST when any was lost. */
	int (*renew)(struct postroom_store *store, const struct pr_table *table,
		     postroom_delivery *items, size_t count, int64_t lease_ms,
		     struct pr_err *err);
	int (*settle)(struct postroom_store *store, const struct pr_table *table,
		      postroom_delivery *items, size_t count, const struct pr_policy *policy,
		      struct pr_err *err);
	/* Buries expired leases without attempts left, at most limit; they are added to batch->buried. */
	int (*sweep)(struct postroom_store *store, const struct pr_table *table,
		     const struct pr_scope *scope, int32_t max_attempts, int32_t limit,
		     struct postroom_batch *batch, struct pr_err *err);
	/* Until the next message becomes eligible by itself, 0 if one is; -1: none will. */
	int (*next_due)(struct postroom_store *store, const struct pr_table *table,
			const struct pr_scope *scope, int64_t *ret_ms, struct pr_err *err);
	/* Is anything leased, due, or waiting for another try? Delayed and never tried does not count. */
	int (*unfinished)(struct postroom_store *store, const struct pr_table *table,
			  const struct pr_scope *scope, bool *ret, struct pr_err *err);

	/* The operator's side; see <postroom/store.h>. */
	int (*list)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		    postroom_row_fn fn, void *context, struct pr_err *err);
	int (*show)(struct postroom_store *store, const char *id, postroom_row_fn fn,
		    void *context, struct pr_err *err);
	/* id, or filter and limit. */
	int (*retry)(struct postroom_store *store, const struct pr_table *table, const char *id,
		     const postroom_filter *filter, int32_t limit, int64_t *ret,
		     struct pr_err *err);
	int (*purge)(struct postroom_store *store, const postroom_filter *filter, int32_t limit,
		     int64_t *ret, struct pr_err *err);
	int (*stats)(struct postroom_store *store, postroom_counts *ret, postroom_topic_fn fn,
		     void *context, struct pr_err *err);
};

/* Every store begins with this. */
struct postroom_store {
	const struct pr_store_ops *ops;
	char worker[PR_UUID_SIZE]; /* new at every open: locked_by */
	struct pr_random random;
	struct pr_err err; /* of the last call through <postroom/store.h> */
};

/* Finds the store for the URL's scheme and opens it. Creates no tables. */
int pr_store_open(const struct pr_store_config *config, struct postroom_store **ret,
		  struct pr_err *err);
void pr_store_close(struct postroom_store *store);

/* The application's side of a connection; outbox/enqueue.c checks, this writes. */
struct pr_box_ops {
	/* Writes message and fills receipt. POSTROOM_OK or POSTROOM_DUPLICATE. */
	int (*insert)(postroom_box *box, const struct pr_prepared *message,
		      postroom_receipt *receipt, struct pr_err *err);
	bool (*in_transaction)(postroom_box *box);
	void (*free)(postroom_box *box);
};

struct postroom_box {
	const struct pr_box_ops *ops;
	size_t max_payload; /* 0: POSTROOM_PAYLOAD_DEFAULT_MAX */
	struct pr_uuid_gen uuids;
	struct pr_err err;
};

extern const struct pr_store_ops pr_store_sqlite;

#endif
