/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that claim, settle and renew through the SQL functions for workers alone (S1), in databases
 * of both kinds of lease. Everything else, such as enqueue, retry and sweep, is the store's own.
 */
#include "contract/store/backend.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "store/pgsql/pgsql.h"
#pragma GCC diagnostic pop

#include <stdlib.h>

struct backend backend_workers_row, backend_workers_lane;

/* The functions of the outbox and of the inbox. The first parameter is the worker. */
struct functions {
	const char *claim, *ack, *nack, *release, *renew;
};

#define SECONDS "* interval '1 microsecond' * 1000"
#define CREATED "(extract(epoch FROM created_at) * 1000000)::bigint"

static const struct functions of_outbox = {
	.claim = "SELECT id, claims, attempts, namespace, topic, key, tenant_id, dedupe_key, "
		 "correlation_id, headers, content_type, payload, body, " CREATED
		 " FROM postroom_claim($1, max_messages => $2, lease => $3::bigint " SECONDS
		 ", max_attempts => $4, namespace => $5, topic => $6, tenant_id => $7)",
	.ack = "SELECT postroom_ack($1, ARRAY[$2::uuid], ARRAY[$3::bigint]) WHERE $4::text IS NULL",
	.nack = "SELECT postroom_nack($1, $2, $3, $5, $6, $7::bigint " SECONDS
		", max_attempts => $8)::int WHERE $4::text IS NULL",
	.release =
		"SELECT postroom_release($1, ARRAY[$2::uuid], ARRAY[$3::bigint]) WHERE $4::text IS NULL",
	.renew = "SELECT postroom_renew($1, ARRAY[$2::uuid], ARRAY[$3::bigint], $5::bigint " SECONDS
		 ") WHERE $4::text IS NULL",
};

static const struct functions of_inbox = {
	.claim = "SELECT id, claims, attempts, $5::text, topic, key, tenant_id, NULL, "
		 "correlation_id, headers, content_type, payload, body, " CREATED
		 " FROM postroom_inbox_claim($1, max_jobs => $2, lease => $3::bigint " SECONDS
		 ", max_attempts => $4, handler => $5, topic => $6) WHERE $7::text IS NULL",
	.ack = "SELECT postroom_inbox_ack($1, $4, ARRAY[$2::text], ARRAY[$3::bigint])",
	.nack = "SELECT postroom_inbox_nack($1, $4, $2, $3, $5, $6, $7::bigint " SECONDS
		", max_attempts => $8)::int",
	.release = "SELECT postroom_inbox_release($1, $4, ARRAY[$2::text], ARRAY[$3::bigint])",
	.renew = "SELECT postroom_inbox_renew($1, $4, ARRAY[$2::text], ARRAY[$3::bigint], "
		 "$5::bigint " SECONDS ")",
};

static const struct functions *functions_of(const struct pr_table *table)
{
	return table == &pr_table_inbox ? &of_inbox : &of_outbox;
}

static PGresult *call(struct postroom_store *base, const char *sql, struct pgsql_params *params,
		      struct pr_err *err)
{
	struct pgsql_store *pgsql = pgsql_store(base);
	PGresult *result = PQexecParams(pgsql->conn, sql, params->count, NULL, params->values, NULL,
					NULL, 0);

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	pr_pgsql_fail(pgsql->conn, result, pgsql->shown, "calling a function of workers", err);
	PQclear(result);
	return NULL;
}

static const char *value_at(const PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

static void clear_result(void *held)
{
	PQclear(held);
}

static void read_body(const PGresult *result, int row, struct postroom_batch *batch,
		      postroom_delivery *item)
{
	unsigned char *bytes;
	void *copy;

	if (PQgetisnull(result, row, 12))
		return;
	bytes = PQunescapeBytea((const unsigned char *)PQgetvalue(result, row, 12), &item->body_len);
	copy = pr_arena_alloc(&batch->arena, item->body_len + 1);
	CHECK(bytes && copy);
	memcpy(copy, bytes, item->body_len);
	item->body = copy;
	PQfreemem(bytes);
}

static int claim_by_function(struct postroom_store *base, const struct pr_table *table,
			     const struct pr_claim *claim, struct postroom_batch *batch,
			     struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PGresult *result;

	pr_pgsql_text(&params, base->worker);
	pr_pgsql_number(&params, claim->limit);
	pr_pgsql_number(&params, claim->lease_ms);
	pr_pgsql_number(&params, claim->max_attempts);
	pr_pgsql_text(&params, claim->scope.ns);
	pr_pgsql_text(&params, claim->scope.topic);
	pr_pgsql_text(&params, claim->scope.tenant_id);
	result = call(base, functions_of(table)->claim, &params, err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		postroom_delivery *item = pr_batch_add(batch);

		CHECK(item);
		item->id = value_at(result, row, 0);
		item->fencing_token = atoll(PQgetvalue(result, row, 1));
		item->attempt = atoi(PQgetvalue(result, row, 2));
		item->ns = value_at(result, row, 3);
		item->topic = value_at(result, row, 4);
		item->key = value_at(result, row, 5);
		item->tenant_id = value_at(result, row, 6);
		item->dedupe_key = value_at(result, row, 7);
		item->correlation_id = value_at(result, row, 8);
		item->headers = value_at(result, row, 9);
		item->content_type = value_at(result, row, 10);
		item->payload = value_at(result, row, 11);
		item->payload_len = item->payload ? strlen(item->payload) : 0;
		read_body(result, row, batch, item);
		item->created_at_us = atoll(PQgetvalue(result, row, 13));
		item->retry_in_ms = -1;
	}
	batch->held = result;
	batch->release_owned = clear_result;
	return POSTROOM_OK;
}

/* Parameters 1 to 4 of every function that settles or renews. */
static void add_item(struct pgsql_params *params, const struct postroom_store *base,
		     const struct pr_table *table, const postroom_delivery *item)
{
	pr_pgsql_text(params, base->worker);
	pr_pgsql_text(params, item->id);
	pr_pgsql_number(params, item->fencing_token);
	pr_pgsql_text(params, table == &pr_table_inbox ? item->ns : NULL);
}

static void settle_item(struct postroom_store *base, const char *sql, struct pgsql_params *params,
			postroom_delivery *item)
{
	struct pr_err err = { 0 };
	PGresult *result = call(base, sql, params, &err);

	CHECK_MSG(result, "%s: %s", sql, err.text);
	item->settled = atoi(PQgetvalue(result, 0, 0)) == 1 ? POSTROOM_OK : POSTROOM_LEASE_LOST;
	PQclear(result);
}

/* The function's own backoff where it is that of the policy. */
static bool is_default_backoff(const struct pr_policy *policy)
{
	return policy->backoff == POSTROOM_BACKOFF_EXPONENTIAL && policy->base_delay_ms == 1000 &&
	       policy->max_delay_ms == 300000;
}

static void nack_item(struct postroom_store *base, const struct pr_table *table,
		      const struct pr_policy *policy, postroom_delivery *item)
{
	bool by_backoff = item->retry_in_ms < 0 && is_default_backoff(policy);
	enum pr_disposition disposition = pr_verdict_decide(item, policy, &base->random);
	struct pgsql_params params = { 0 };

	add_item(&params, base, table, item);
	pr_pgsql_text(&params, item->reason);
	pr_pgsql_text(&params, item->verdict == POSTROOM_REJECTED ? "t" : "f");
	if (by_backoff || disposition == PR_DISPOSITION_DEAD)
		pr_pgsql_text(&params, NULL);
	else
		pr_pgsql_number(&params, item->retry_in_ms);
	pr_pgsql_number(&params, policy->max_attempts);
	settle_item(base, functions_of(table)->nack, &params, item);
	item->dead = disposition == PR_DISPOSITION_DEAD && item->settled == POSTROOM_OK;
}

static int count_lost(const postroom_delivery *items, size_t count, struct pr_err *err)
{
	size_t lost = 0;

	for (size_t i = 0; i < count; i++)
		lost += items[i].settled != POSTROOM_OK;
	return lost ? pr_store_lease_lost(lost, count, err) : POSTROOM_OK;
}

/* Failures last, the later one of a key first: a failure releases the later ones of its key. */
static int settle_by_functions(struct postroom_store *base, const struct pr_table *table,
			       const struct pr_settle *settle, struct pr_err *err)
{
	const struct functions *functions = functions_of(table);

	CHECK(base->ops->begin(base, err) >= 0);
	for (size_t i = 0; i < settle->count; i++) {
		postroom_delivery *item = &settle->items[i];
		struct pgsql_params params = { 0 };

		if (item->verdict == POSTROOM_FAILED || item->verdict == POSTROOM_REJECTED)
			continue;
		add_item(&params, base, table, item);
		settle_item(base, item->verdict == POSTROOM_DELIVERED ? functions->ack : functions->release,
			    &params, item);
	}
	for (size_t i = settle->count; i-- > 0;) {
		postroom_delivery *item = &settle->items[i];

		if (item->verdict == POSTROOM_FAILED || item->verdict == POSTROOM_REJECTED)
			nack_item(base, table, settle->policy, item);
	}
	CHECK(base->ops->end(base, POSTROOM_OK, err) >= 0);
	return count_lost(settle->items, settle->count, err);
}

static int settle_and_claim_by_functions(struct postroom_store *base, const struct pr_table *table,
					 const struct pr_settle *settle, const struct pr_claim *claim,
					 struct postroom_batch *batch, struct pr_err *err)
{
	int settled = settle ? settle_by_functions(base, table, settle, err) : POSTROOM_OK;
	int claimed = claim ? claim_by_function(base, table, claim, batch, err) : POSTROOM_OK;

	return claimed < 0 ? claimed : settled;
}

static int renew_by_function(struct postroom_store *base, const struct pr_table *table,
			     postroom_delivery *items, size_t count, int64_t lease_ms,
			     struct pr_err *err)
{
	for (size_t i = 0; i < count; i++) {
		struct pgsql_params params = { 0 };

		add_item(&params, base, table, &items[i]);
		pr_pgsql_number(&params, lease_ms);
		settle_item(base, functions_of(table)->renew, &params, &items[i]);
	}
	return count_lost(items, count, err);
}

static void use_functions(postroom_store *opened)
{
	static struct pr_store_ops ops;

	ops = *opened->ops;
	ops.settle_and_claim = settle_and_claim_by_functions;
	ops.renew = renew_by_function;
	opened->ops = &ops;
}

__attribute__((constructor)) static void describe_backends(void)
{
	backend_workers_row = backend_pgsql;
	backend_workers_row.name = "workers_row";
	backend_workers_row.adapt = use_functions;
	backend_workers_lane = backend_pgsql_lane;
	backend_workers_lane.name = "workers_lane";
	backend_workers_lane.lanes = false;
	backend_workers_lane.adapt = use_functions;
}
