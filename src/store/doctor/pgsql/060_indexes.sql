-- SPDX-License-Identifier: Apache-2.0
-- check: indexes
-- title: Every index is present, valid and as defined
-- needs: tables
-- Definitions are compared without spaces, parentheses and casts, which PostgreSQL adds and removes.
WITH wanted(name, definition) AS (
	SELECT name, definition FROM (VALUES {indexes}) AS indexes(name, definition, kind)
	WHERE kind IS NULL OR kind = (SELECT lease FROM {schema}postroom_lanes LIMIT 1)
), present AS (
	SELECT c.relname::text AS name, i.indexrelid, i.indisvalid AND i.indisready AS usable,
		replace(pg_get_indexdef(i.indexrelid), '{schema}', '') AS definition
	FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
	WHERE i.indrelid IN (SELECT to_regclass('{schema}postroom_' || name)
		FROM unnest(ARRAY['outbox', 'inbox', 'dedupe', 'history', 'lanes']) AS name)
), compared AS (
	SELECT coalesce(w.name, p.name) AS name, w.definition AS wanted, p.definition AS present, p.usable,
		EXISTS (SELECT FROM pg_stat_progress_create_index WHERE index_relid = p.indexrelid) AS building,
		-- This role does not see which index another role builds.
		EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid IS NULL AND datname = current_database()) AS hidden,
		regexp_replace(regexp_replace(regexp_replace(lower(w.definition), '\s+in\s*\(', '= any (array[', 'g'),
			'::[a-z_]+|using btree', '', 'g'), '[\s()\[\]]', '', 'g') IS DISTINCT FROM
		regexp_replace(regexp_replace(lower(p.definition), '::[a-z_]+|using btree', '', 'g'), '[\s()\[\]]', '', 'g') AS differs
	FROM wanted AS w FULL JOIN present AS p USING (name)
)
SELECT CASE WHEN building THEN 'note' WHEN hidden THEN 'skipped' ELSE 'problem' END AS level, format('Index %s is %s', name,
		CASE WHEN building THEN 'being built' WHEN present IS NULL THEN 'missing' ELSE 'invalid' END
			|| CASE WHEN hidden AND NOT building THEN ' or being built' ELSE '' END) AS title,
	CASE WHEN building THEN 'CREATE INDEX CONCURRENTLY waits for the transactions that were open when it began. Claims cannot use the index before it ends.'
		WHEN hidden THEN 'Another role builds an index, and this role cannot see which one.'
		WHEN present IS NULL THEN 'Claims, sweeps or purges read the whole table instead of this index.'
		ELSE 'An interrupted CREATE INDEX CONCURRENTLY left it. Every write maintains it, and no query uses it.' END AS detail,
	CASE WHEN building OR hidden THEN 'Wait until it is finished, then run doctor again.'
		ELSE 'The owner of the tables runs the command, or postroom doctor --fix.' END AS advice,
	CASE WHEN building OR hidden THEN NULL
		WHEN name LIKE '%\_ccnew%' OR name LIKE '%\_ccold%' THEN format('DROP INDEX CONCURRENTLY {schema}%I;', name)
		WHEN present IS NULL THEN regexp_replace(replace(wanted, ' ON postroom_', ' ON {schema}postroom_'),
			' INDEX ', ' INDEX CONCURRENTLY ') || ';'
		ELSE format('REINDEX INDEX CONCURRENTLY {schema}%I;', name) END AS command, NOT building AND NOT hidden AS fix
FROM compared WHERE present IS NULL OR NOT usable
UNION ALL
SELECT 'warning', format('Index %s differs from its definition', name),
	format('It is: %s. It should be: %s. Claims may not be able to use it.', present, wanted),
	'The owner of the tables runs the commands, one after the other.',
	format('DROP INDEX CONCURRENTLY {schema}%I;', name) || E'\n'
		|| regexp_replace(replace(wanted, ' ON postroom_', ' ON {schema}postroom_'), ' INDEX ', ' INDEX CONCURRENTLY ') || ';',
	false
FROM compared WHERE wanted IS NOT NULL AND usable AND differs
ORDER BY 2 LIMIT 50
