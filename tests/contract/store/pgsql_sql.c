/* SPDX-License-Identifier: Apache-2.0 */
/* PostgreSQL for every language: the SQL functions, and the guards of a plain INSERT (E4 to E8, I1). */
#include "base/json.h"
#include "contract/store/pgsql.h"
#include "unit/table.h"

#include <stdlib.h>

#define TENANT_HEX "0f5a3c1e7b2d4e9a8c112233445566aa"

PGSQL_TEST(E6_sql_function_accepts_every_argument_by_name)
{
	sql(app, "CREATE TEMP TABLE answer AS SELECT * FROM postroom_enqueue("
		 "'orders.created', '{\"a\": 1}', namespace => 'shop', key => 'o-1', "
		 "tenant_id => '" TENANT "', idempotency_key => 'i-1', "
		 "headers => '{\"h\": \"v\"}', correlation_id => 'c-1', "
		 "content_type => 'application/vnd.shop+json', delay => '90 s', priority => 30)");
	CHECK_STR(text(app, "SELECT id FROM answer"), text(app, "SELECT id FROM postroom_outbox"));
	CHECK_STR(text(app, "SELECT dedupe_key FROM answer"), TENANT "/i-1");
	CHECK_STR(text(app, "SELECT duplicate FROM answer"), "f");
	CHECK_STR(text(app, "SELECT concat_ws('|', namespace, topic, key, tenant_id, dedupe_key, "
			    "correlation_id, content_type, headers, payload, body, status) "
			    "FROM postroom_outbox"),
		  "shop|orders.created|o-1|" TENANT "|" TENANT "/i-1|c-1|application/vnd.shop+json|"
		  "{\"h\": \"v\"}|{\"a\": 1}|pending");
	CHECK_INT(time_of(app, "next_attempt_at", "true") - time_of(app, "created_at", "true"),
		  60000000);
	CHECK_INT(time_of(app, "updated_at", "true"), time_of(app, "created_at", "true"));
}

/* A new version of the system's locales would leave them in another order than the one that it expects. */
PGSQL_TEST(U1_no_index_depends_on_a_locale)
{
	CHECK_STR(text(app,
		       "SELECT string_agg(DISTINCT l.collname, ', ') "
		       "FROM pg_index AS i CROSS JOIN LATERAL unnest(indcollation) AS c(id) "
		       "JOIN pg_collation AS l ON l.oid = c.id "
		       "JOIN pg_class AS t ON t.oid = i.indrelid WHERE relname LIKE 'postroom%%'"),
		  "C");
}

/* An argument brings the collation of the column that it comes from. */
PGSQL_TEST(E6_arguments_of_the_functions_may_have_any_collation)
{
	static const char again[] =
		"SELECT duplicate FROM postroom_enqueue('t' COLLATE \"POSIX\", '1', "
		"dedupe_key => 'k')";
	static const char submit[] = "SELECT duplicate FROM postroom_inbox_submit("
				     "'h' COLLATE \"POSIX\", 'i', '1')";

	CHECK_STR(text(app, "%s", again), "f");
	CHECK_STR(text(app, "%s", again), "t");
	CHECK_STR(text(app, "%s", submit), "f");
	CHECK_STR(text(app, "%s", submit), "t");
}

PGSQL_TEST(E6_the_sql_function_needs_topic_and_payload_only)
{
	sql(app, "SELECT postroom_enqueue('t', '1')");
	CHECK_STR(text(app,
		       "SELECT concat_ws('|', namespace, topic, content_type, headers, payload,"
		       " status, attempts, claims) FROM postroom_outbox WHERE key IS NULL "
		       "AND tenant_id IS NULL AND dedupe_key IS NULL AND correlation_id IS NULL "
		       "AND body IS NULL AND locked_by IS NULL"),
		  "default|t|application/json|{}|1|pending|0|0");
	CHECK_INT(time_of(app, "next_attempt_at", "true"), time_of(app, "created_at", "true"));
	/* A driver that always sends all of them sends NULLs. */
	sql(app, "SELECT postroom_enqueue('u', '1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
		 " NULL, NULL, NULL)");
	CHECK_INT(rows("pending"), 2);
	CHECK_INT(number(app, "SELECT count(DISTINCT (namespace, content_type, headers, "
			      "next_attempt_at - created_at)) FROM postroom_outbox"),
		  1);
}

PGSQL_TEST(E8_sql_function_accepts_a_body)
{
	sql(app, "SELECT postroom_enqueue('t', NULL, body => '\\x00ff')");
	sql(app, "SELECT postroom_enqueue('t', 'null', body => '\\x00ff')");
	CHECK_INT(number(app, "SELECT count(*) FROM postroom_outbox WHERE body = '\\x00ff' "
			      "AND payload = 'null' AND content_type = 'application/octet-stream'"),
		  2);
}

PGSQL_TEST(E3_sql_function_reports_duplicates)
{
	const char *first = text(app, "SELECT id FROM postroom_enqueue('t', '1', "
				      "idempotency_key => 'k', tenant_id => '" TENANT "')");

	CHECK_STR(text(app,
		       "SELECT concat_ws('|', id, dedupe_key, duplicate) FROM postroom_enqueue("
		       "'t', '2', dedupe_key => '" TENANT "/k', tenant_id => '" TENANT "')"),
		  text(app, "SELECT '%s|" TENANT "/k|t'", first));
	CHECK_STR(text(app, "SELECT duplicate FROM postroom_enqueue('u', '1', "
			    "dedupe_key => '" TENANT "/k')"),
		  "f");
	/* The library and the function see each other's. */
	CHECK_STR(PUT(.topic = "t", .payload = "1", .tenant_id = TENANT, .idempotency_key = "k").id,
		  first);
	CHECK_INT(rows("pending"), 2);
}

PGSQL_TEST(E5_sql_function_raises_on_bad_input_and_writes_nothing)
{
	static const struct {
		const char *arguments, *sqlstate, *part;
	} bad[] = {
		{ "NULL, '1'", "23502", "topic" },
		{ "'', '1'", "23514", "topic" },
		{ "repeat('a', 256), '1'", "23514", "topic" },
		{ "E'a\\nb', '1'", "23514", "topic" },
		{ "'t', NULL", "23502", "payload" },
		{ "'t', '{'", "22P02", "json" },
		{ "'t', '\"\\u0000\"'", "22P05", "Unicode" },
		{ "'t', '1', namespace => ''", "23514", "namespace" },
		{ "'t', '1', key => ''", "23514", "key" },
		{ "'t', '1', tenant_id => 'x'", "22P02", "uuid" },
		{ "'t', '1', tenant_id => '" TENANT "', dedupe_key => 'k'", "23514", "dedupe_key" },
		{ "'t', '1', dedupe_key => 'a', idempotency_key => 'b'", "22023", "dedupe_key" },
		{ "'t', '1', idempotency_key => ''", "22023", "idempotency_key" },
		{ "'t', '1', tenant_id => '" TENANT "', idempotency_key => ''", "22023",
		  "idempotency_key" },
		{ "'t', '1', idempotency_key => repeat('a', 513)", "23514", "dedupe_key" },
		{ "'t', '1', headers => '[]'", "23514", "headers" },
		{ "'t', '1', headers => '{\"a\": 1}'", "23514", "headers" },
		{ "'t', '1', correlation_id => ''", "23514", "correlation_id" },
		{ "'t', '1', content_type => ''", "23514", "content_type" },
		{ "'t', '{}', body => 'x'", "22023", "payload" },
		{ "'t', '1', delay => '-1 s'", "22023", "delay" },
		{ "'t', '1', delay => '3651 days'", "22023", "delay" },
		{ "'t', '1', priority => -1", "22023", "priority" },
		{ "'t', '1', priority => 3601", "22023", "priority" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct refusal refusal = refusal_of(app, "SELECT postroom_enqueue(%s)",
						    bad[i].arguments);

		CHECK_MSG(strcmp(refusal.sqlstate, bad[i].sqlstate) == 0, "%s: %s %s",
			  bad[i].arguments, refusal.sqlstate, refusal.message);
		CHECK_CONTAINS(refusal.message, bad[i].part);
	}
	CHECK_INT(rows(NULL), 0);
}

/* They plan with settings of their own. */
#define OF_WORKERS "'^postroom_(inbox_)?(claim|ack|nack|release|renew)$'"

/* The input arguments of a function, how many of them are required, and what it returns. */
static const char *signature(const char *name)
{
	return text(app,
		    "SELECT string_agg(a.name || ' ' || a.type::regtype, ', ' ORDER BY n) || ': ' "
		    "|| p.pronargs - p.pronargdefaults || ', ' || p.prorettype::regtype "
		    "FROM pg_proc AS p, unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), "
		    "coalesce(p.proargmodes, array_fill('i'::\"char\", ARRAY[p.pronargs::int]))) "
		    "WITH ORDINALITY AS a(name, type, mode, n) "
		    "WHERE p.proname = '%s' AND a.mode IN ('i', 'b') "
		    "GROUP BY p.oid, p.pronargs, p.pronargdefaults, p.prorettype",
		    name);
}

PGSQL_TEST(S1_functions_of_workers_match_the_documented_signatures)
{
	CHECK_STR(signature("postroom_claim"),
		  "worker uuid, max_messages integer, lease interval, namespace text, topic text, "
		  "tenant_id uuid, max_attempts integer: 1, record");
	CHECK_STR(signature("postroom_ack"),
		  "worker uuid, ids uuid[], claims bigint[]: 3, bigint");
	CHECK_STR(signature("postroom_nack"),
		  "worker uuid, id uuid, claims bigint, error text, permanent boolean, "
		  "retry_in interval, max_attempts integer: 3, boolean");
	CHECK_STR(signature("postroom_release"),
		  "worker uuid, ids uuid[], claims bigint[]: 3, bigint");
	CHECK_STR(signature("postroom_renew"),
		  "worker uuid, ids uuid[], claims bigint[], lease interval: 3, bigint");
	CHECK_STR(signature("postroom_inbox_claim"),
		  "worker uuid, handler text, max_jobs integer, lease interval, topic text, "
		  "max_attempts integer: 2, record");
	sql(app, "CREATE TEMP TABLE claimed AS SELECT * FROM postroom_claim(gen_random_uuid())");
	CHECK_STR(text(app, "SELECT string_agg(attname || ' ' || atttypid::regtype, ', ' "
			    "ORDER BY attnum) FROM pg_attribute "
			    "WHERE attrelid = 'claimed'::regclass AND attnum > 0"),
		  "id uuid, claims bigint, attempts integer, namespace text, topic text, key text, "
		  "tenant_id uuid, dedupe_key text, correlation_id text, headers jsonb, "
		  "content_type text, payload jsonb, body bytea, "
		  "created_at timestamp with time zone");
	/* Only settings of the planner, and only in these ten. */
	CHECK_STR(text(app, "SELECT string_agg(DISTINCT split_part(s, '=', 1), ' ') || ' ' || "
			    "count(DISTINCT proname) FROM pg_proc, unnest(proconfig) AS s "
			    "WHERE proname LIKE 'postroom\\_%%'"),
		  "enable_bitmapscan enable_hashjoin enable_mergejoin enable_seqscan jit "
		  "plan_cache_mode 10");
}

PGSQL_TEST(E6_sql_functions_match_the_documented_signatures)
{
	CHECK_INT(number(app, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'postroom\\_%%' "
			      "AND (prosecdef OR (proconfig IS NOT NULL AND proname !~ " OF_WORKERS "))"),
		  0);
	CHECK_INT(number(app,
			 "SELECT count(*) FROM (SELECT proname FROM pg_proc WHERE proname LIKE "
			 "'postroom\\_%%' GROUP BY proname HAVING count(*) > 1) AS overloaded"),
		  0);
	CHECK_STR(text(app, "SELECT string_agg(name || ' ' || type::regtype, ', ' ORDER BY n) "
			    "FROM pg_proc, unnest(proargnames, proallargtypes, proargmodes) "
			    "WITH ORDINALITY AS a(name, type, mode, n) "
			    "WHERE proname = 'postroom_enqueue' AND mode IN ('i', 'b')"),
		  "topic text, payload jsonb, namespace text, key text, tenant_id uuid, dedupe_key "
		  "text, idempotency_key text, headers jsonb, correlation_id text, content_type "
		  "text, "
		  "body bytea, delay interval, priority integer");
	CHECK_INT(number(app, "SELECT pronargs - pronargdefaults FROM pg_proc "
			      "WHERE proname = 'postroom_enqueue'"),
		  2);
	sql(app, "CREATE TEMP TABLE answer AS SELECT * FROM postroom_enqueue('t', '1')");
	CHECK_STR(text(app, "SELECT string_agg(attname || ' ' || atttypid::regtype, ', ' "
			    "ORDER BY attnum) FROM pg_attribute "
			    "WHERE attrelid = 'answer'::regclass AND attnum > 0"),
		  "id uuid, dedupe_key text, duplicate boolean");
	CHECK_STR(text(app, "SELECT pg_get_function_arguments(oid) || ' ' || prorettype::regtype "
			    "FROM pg_proc WHERE proname = 'postroom_key'"),
		  "tenant text, category text, entity text, kind text, version text DEFAULT "
		  "'0'::text uuid");
	CHECK_STR(text(app, "SELECT pg_get_function_arguments(oid) || ' ' || prorettype::regtype "
			    "FROM pg_proc WHERE proname = 'postroom_inbox_once'"),
		  "id text, handler text boolean");
	CHECK_STR(
		text(app, "SELECT pg_get_function_arguments(oid) "
			  "FROM pg_proc WHERE proname = 'postroom_inbox_submit'"),
		"handler text, id text, payload jsonb DEFAULT NULL::jsonb, tenant_id uuid DEFAULT "
		"NULL::uuid, correlation_id text DEFAULT NULL::text, OUT status text, "
		"OUT duplicate boolean");
}

/* Names carry their schema, and literals are plain, whatever the session's settings are. */
PGSQL_TEST(E6_the_functions_do_not_depend_on_the_session)
{
	sql(app, "SET search_path = pg_catalog");
	sql(app, "SET standard_conforming_strings = off");
	sql(app, "SET bytea_output = 'escape'");
	sql(app, "SET IntervalStyle = 'sql_standard'");
	sql(app, "SET DateStyle = 'German'");
	CHECK_STR(text(app, "SELECT duplicate FROM public.postroom_enqueue('t', '1', "
			    "dedupe_key => 'k', headers => '{\"a\": \"b\"}', delay => '1 s')"),
		  "f");
	CHECK_STR(text(app, "SELECT duplicate FROM public.postroom_enqueue('t', '1', "
			    "dedupe_key => 'k')"),
		  "t");
	CHECK_STR(text(app, "SELECT public.postroom_key('acme', 'billing', 'inv-1', 'paid')"),
		  "0337af23-8959-242a-81a6-2733c35f5deb");
	sql(app, "INSERT INTO public.postroom_outbox (topic, payload, headers) "
		 "VALUES ('t', '1', '{\"a\": \"b\"}')");
}

PGSQL_TEST(I1_the_key_in_sql_agrees_with_every_vector)
{
	struct table table;
	char *fields[6];
	int seen = 0;

	table_open(&table, "key_vectors.tsv");
	while (table_next(&table, fields, 6)) {
		const char *values[5];
		PGresult *result;
		bool valid = strcmp(fields[5], "invalid") != 0;

		for (int i = 0; i < 5; i++)
			values[i] = strcmp(fields[i], "\\N") == 0 ? NULL : fields[i];
		result = PQexecParams(conn_of(app), "SELECT postroom_key($1, $2, $3, $4, $5)", 5,
				      NULL, values, NULL, NULL, 0);
		CHECK_MSG((PQresultStatus(result) == PGRES_TUPLES_OK) == valid, "line %d: %s",
			  table.number, PQresultErrorMessage(result));
		if (valid)
			CHECK_STR(PQgetvalue(result, 0, 0), fields[5]);
		PQclear(result);
		seen++;
	}
	table_close(&table);
	CHECK(seen > 20);
	CHECK_STR(refusal_of(app, "SELECT postroom_key('a', NULL, 'c', 'd')").sqlstate, "22004");
}

/* The bytes as they are, a NUL among them too. */
static PGresult *cast_to_jsonb(const struct pr_buf *text)
{
	const char *values[] = { pr_buf_text(text) };
	const int lengths[] = { (int)text->len }, formats[] = { 1 };

	return PQexecParams(conn_of(app), "SELECT $1::text::jsonb", 1, NULL, values, lengths,
			    formats, 1);
}

PGSQL_TEST(E5_json_verdicts_agree_with_the_jsonb_of_this_server)
{
	struct table table;
	char *fields[3];
	int seen = 0;

	table_open(&table, "json_cases.tsv");
	while (table_next(&table, fields, 3)) {
		struct pr_buf text = { 0 };
		PGresult *result;
		bool taken;

		table_unescape(fields[1], strlen(fields[1]), &text);
		CHECK(!text.failed);
		result = cast_to_jsonb(&text);
		taken = PQresultStatus(result) == PGRES_TUPLES_OK;
		CHECK_MSG(taken == (strcmp(fields[0], "bad") != 0), "line %d (%s): %s",
			  table.number, fields[2], taken ? "taken" : PQresultErrorMessage(result));
		CHECK_MSG(pr_json_check(pr_buf_text(&text), text.len, NULL) ==
				  (strcmp(fields[0], "ok") == 0),
			  "line %d (%s): ours", table.number, fields[2]);
		PQclear(result);
		pr_buf_release(&text);
		seen++;
	}
	table_close(&table);
	CHECK(seen > 200);
}

/* The library must write payloads that our rule accepts, without harm to the transaction. */
PGSQL_TEST(E5_every_accepted_payload_can_be_written_and_claimed)
{
	struct table table;
	char *fields[3];
	postroom_batch *batch;
	int64_t taken = 0, claimed = 0;
	size_t count;

	table_open(&table, "json_cases.tsv");
	begin(app);
	while (table_next(&table, fields, 3)) {
		struct pr_buf text = { 0 };
		int status;

		if (strcmp(fields[0], "ok") != 0 || strstr(fields[1], "131071,*"))
			continue;
		table_unescape(fields[1], strlen(fields[1]), &text);
		status = postroom_enqueue(app->box,
					  POSTROOM_MESSAGE(.topic = "t", .payload = text.data,
							   .payload_len = text.len),
					  NULL);
		CHECK_MSG(status == POSTROOM_OK, "line %d: %s", table.number,
			  postroom_errmsg(app->box));
		pr_buf_release(&text);
		taken++;
	}
	commit(app);
	table_close(&table);
	CHECK(taken > 50);
	do {
		batch = CLAIM();
		count = count_of(batch);
		claimed += (int64_t)count;
		postroom_batch_free(batch);
	} while (count > 0);
	CHECK_INT(claimed, taken);
}

/* Some are the table's, some those of its columns' domains. */
struct guard {
	const char *constraint, *columns, *values;
};

#define NAME "namespace: 1 to 255 bytes without control characters"
#define TOPIC "topic: 1 to 255 bytes without control characters"
#define TYPE "content_type: 1 to 255 bytes without control characters"
#define HEADERS "headers: strings without control characters, 64 KiB at most"
#define CORRELATION "correlation_id: 1 to 255 bytes without control characters"
#define PREFIXED "dedupe_key: begins with the tenant_id and a slash"
#define LEASE "locked_by, locked_until: set while processing, and only then"
#define TIME "a time between 1970 and 9999"

static const struct guard guards[] = {
	{ "postroom_outbox_pkey", "id", "(SELECT id FROM postroom_outbox LIMIT 1)" },
	{ "postroom_outbox_dedupe", "dedupe_key", "'taken'" },
	{ NAME, "namespace", "''" },
	{ NAME, "namespace", "repeat('a', 256)" },
	{ NAME, "namespace", "'a' || chr(1)" },
	{ NAME, "namespace", "'a' || chr(31)" },
	{ NAME, "namespace", "'a' || chr(127)" },
	{ TOPIC, "topic", "''" },
	{ TOPIC, "topic", "repeat('a', 256)" },
	{ TOPIC, "topic", "repeat('\xc3\xa9', 128)" },
	{ TOPIC, "topic", "'a' || chr(10)" },
	{ "key: 1 to 1024 bytes", "key", "''" },
	{ "key: 1 to 1024 bytes", "key", "repeat('a', 1025)" },
	{ "dedupe_key: 1 to 512 bytes", "dedupe_key", "''" },
	{ "dedupe_key: 1 to 512 bytes", "dedupe_key", "repeat('a', 513)" },
	{ CORRELATION, "correlation_id", "''" },
	{ CORRELATION, "correlation_id", "repeat('a', 256)" },
	{ CORRELATION, "correlation_id", "'a' || chr(10)" },
	{ TYPE, "content_type", "''" },
	{ TYPE, "content_type", "repeat('a', 256)" },
	{ TYPE, "content_type", "'text/plain' || chr(13) || chr(10)" },
	{ "payload: 64 MiB at most when printed", "payload",
	  "(SELECT jsonb_agg(1e131071) FROM generate_series(1, 512))" },
	{ "body: 64 MiB at most", "body", "convert_to(repeat('a', 67108865), 'UTF8')" },
	{ HEADERS, "headers", "'{\"a\": \"b\\nc\"}'" },
	{ HEADERS, "headers", "'[]'" },
	{ HEADERS, "headers", "'1'" },
	{ HEADERS, "headers", "'null'" },
	{ HEADERS, "headers", "'{\"a\": 1}'" },
	{ HEADERS, "headers", "'{\"a\": null}'" },
	{ HEADERS, "headers", "'{\"a\": {}}'" },
	{ HEADERS, "headers", "'{\"a\": []}'" },
	{ HEADERS, "headers", "'{\"a\": [\"b\"]}'" },
	{ HEADERS, "headers", "'{\"a\": \"b\", \"c\": [[\"b\"]]}'" },
	{ HEADERS, "headers", "jsonb_build_object('a', repeat('a', 131072))" },
	{ "status: pending, processing, delivered or dead", "status", "'done'" },
	{ "attempts: 0 to 1000000", "attempts", "-1" },
	{ "attempts: 0 to 1000000", "attempts", "2147483647" },
	{ "claims: not negative", "claims", "-1" },
	{ PREFIXED, "tenant_id, dedupe_key", "'" TENANT "', 'k'" },
	{ PREFIXED, "tenant_id, dedupe_key", "'" TENANT "', '" TENANT_HEX "k/'" },
	{ LEASE, "status", "'processing'" },
	{ LEASE, "locked_by", "'" TENANT "'" },
	{ LEASE, "locked_until", "now()" },
	{ LEASE, "status, locked_by", "'processing', '" TENANT "'" },
	{ TIME, "next_attempt_at", "'infinity'" },
	{ TIME, "next_attempt_at", "'-infinity'" },
	{ TIME, "next_attempt_at", "'200000-01-01'" },
	{ TIME, "created_at", "'infinity'" },
	{ TIME, "updated_at", "'-infinity'" },
	{ TIME, "last_attempt_at", "'infinity'" },
	{ TIME, "delivered_at", "'infinity'" },
	{ TIME, "status, locked_by, locked_until", "'processing', '" TENANT "', 'infinity'" },
};
#define GUARDS (sizeof(guards) / sizeof(guards[0]))

PGSQL_TEST(E6_every_constraint_applies_to_a_plain_insert)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload, dedupe_key) "
		 "VALUES ('t', '1', 'taken')");
	for (size_t i = 0; i < GUARDS; i++) {
		bool topic = strstr(guards[i].columns, "topic") != NULL;
		bool payload = strstr(guards[i].columns, "payload") != NULL;
		struct refusal refusal = refusal_of(
			app, "INSERT INTO postroom_outbox (%s%s%s) VALUES (%s%s%s)",
			guards[i].columns, topic ? "" : ", topic", payload ? "" : ", payload",
			guards[i].values, topic ? "" : ", 't'", payload ? "" : ", '1'");

		CHECK_MSG(strcmp(refusal.constraint, guards[i].constraint) == 0, "%s = %s: %s (%s)",
			  guards[i].columns, guards[i].values, refusal.constraint, refusal.message);
	}
	CHECK_INT(rows(NULL), 1);
}

PGSQL_TEST(E6_plain_insert_with_an_unknown_state_is_refused)
{
	static const char *const unknown[] = { "'new'", "'Ready'", "''", "1" };

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		struct refusal refusal = refusal_of(
			app, "INSERT INTO postroom_outbox (topic, payload, state) VALUES ('t', '1', %s)",
			unknown[i]);

		CHECK_CONTAINS(refusal.message, "postroom_state");
	}
	CHECK_INT(rows(NULL), 0);
}

PGSQL_TEST(E6_every_constraint_has_a_test)
{
	static char named[GUARDS * 80];
	size_t length = 0;

	for (size_t i = 0; i < GUARDS; i++)
		length += (size_t)snprintf(named + length, sizeof(named) - length, "%s'%s'",
					   i ? ", " : "", guards[i].constraint);
	CHECK(length < sizeof(named));
	CHECK_STR(
		text(app,
		     "SELECT string_agg(conname, ', ') FROM pg_constraint WHERE contype <> 'n' AND "
		     "(conrelid = 'postroom_outbox'::regclass OR contypid IN (SELECT atttypid FROM "
		     "pg_attribute WHERE attrelid = 'postroom_outbox'::regclass)) "
		     "AND conname NOT IN (%s)",
		     named),
		"(null)");
}

/* The tables take whatever the library lets through, to the last byte. */
PGSQL_TEST(E6_the_longest_values_pass_the_constraints)
{
	sql(app, "INSERT INTO postroom_outbox (topic, payload, namespace, key, dedupe_key, "
		 "correlation_id, content_type, headers, body, next_attempt_at) VALUES ("
		 "repeat('t', 255), to_jsonb(repeat('p', 1048574)), repeat('n', 255), "
		 "repeat('k', 1024), repeat('d', 512), repeat('c', 255), repeat('c', 255), "
		 "jsonb_build_object('a', repeat('h', 65000)), "
		 "convert_to(repeat('b', 1048576), 'UTF8'), '9999-12-31 23:59:59Z')");
	CHECK_INT(rows("pending"), 1);
}

/* Headers of many small members grow by a third when jsonb prints them. */
PGSQL_TEST(E8_largest_headers_are_accepted_by_library_and_table)
{
	struct pr_buf headers = { 0 };

	for (int i = 0; headers.len < POSTROOM_HEADERS_MAX - 20; i++)
		pr_buf_printf(&headers, "%c\"%d\":\"\"", i ? ',' : '{', i);
	pr_buf_putc(&headers, '}');
	PUT(.topic = "t", .payload = "1", .headers = headers.data);
	CHECK_INT(rows("pending"), 1);
	pr_buf_release(&headers);
}
