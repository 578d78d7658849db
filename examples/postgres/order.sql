-- SPDX-License-Identifier: Apache-2.0
-- psql URL -f order.sql: an order and its message in one transaction, in psql.
\set ON_ERROR_STOP on
\set QUIET on
CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text, total integer);

BEGIN;
INSERT INTO orders VALUES ('sql-1', 'Ada', 4200);
SELECT id FROM postroom_enqueue('orders.created', '{"order": "sql-1", "total": 4200}',
	key => 'sql-1', idempotency_key => 'sql-1') \gset
COMMIT;
\echo 'sql-1 is placed, with message' :id

-- The same order again. A duplicate is a result, not an error: the transaction continues.
BEGIN;
SELECT id, duplicate FROM postroom_enqueue('orders.created', '{"order": "sql-1", "total": 4200}',
	key => 'sql-1', idempotency_key => 'sql-1') \gset
\if :duplicate
	\echo 'sql-1 was placed before, with message' :id
\else
	INSERT INTO orders VALUES ('sql-1', 'Ada', 4200);
\endif
COMMIT;

-- This transaction is rolled back, so there is no message. A plain INSERT works like the function.
BEGIN;
INSERT INTO orders VALUES ('sql-2', 'Bob', 0);
INSERT INTO postroom_outbox (topic, key, payload)
VALUES ('orders.created', 'sql-2', '{"order": "sql-2", "total": 0}');
ROLLBACK;
\echo 'order sql-2 costs nothing: rolled back, and no message about it'
