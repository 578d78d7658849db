-- SPDX-License-Identifier: Apache-2.0
-- check: bloat
-- title: Indexes are not bloated
-- needs: tables
SELECT 'note' AS level, format('Index %s is bloated', c.relname) AS title,
	format('It takes %s for about %s entries. Claims read more pages than necessary.', pg_size_pretty(pg_relation_size(c.oid)), c.reltuples::bigint) AS detail,
	'The owner of the tables runs the command. It does not block producers or relays.' AS advice,
	format('REINDEX INDEX CONCURRENTLY {schema}%I;', c.relname) AS command, false AS fix
FROM pg_class AS c JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE i.indrelid IN (SELECT to_regclass('{schema}postroom_' || name) FROM unnest(ARRAY['outbox', 'inbox', 'history', 'dedupe']) AS name)
	AND i.indisvalid AND c.relpages > 1280 AND c.reltuples >= 0 AND c.relpages * 8192.0 > 400 * greatest(c.reltuples, 1)
	AND c.relname NOT LIKE '%dedupe%' AND c.relname NOT LIKE '%key%'
ORDER BY c.relpages DESC LIMIT 3
