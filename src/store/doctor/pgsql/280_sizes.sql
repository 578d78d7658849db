-- SPDX-License-Identifier: Apache-2.0
-- check: sizes
-- title: Sizes
-- needs: tables
SELECT 'ok' AS level, 'Sizes' AS title,
	string_agg(format('%s %s', name, pg_size_pretty(pg_total_relation_size(oid))), ', ' ORDER BY name) AS detail,
	NULL AS advice, NULL AS command, false AS fix
FROM (SELECT name, to_regclass('{schema}postroom_' || name) AS oid
	FROM unnest(ARRAY['outbox', 'inbox', 'history', 'dedupe']) AS name) AS t
