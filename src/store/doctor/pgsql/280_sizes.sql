-- SPDX-License-Identifier: Apache-2.0
-- check: sizes
-- title: Size and age of the tables
-- needs: tables
WITH oldest(name, at) AS (
	SELECT 'outbox', (SELECT created_at FROM {schema}postroom_outbox ORDER BY id LIMIT 1)::timestamptz
	UNION ALL SELECT 'inbox', (SELECT created_at FROM {schema}postroom_inbox ORDER BY seq LIMIT 1)
	UNION ALL SELECT 'history', (SELECT delivered_at FROM {schema}postroom_history ORDER BY delivered_at LIMIT 1)
	UNION ALL SELECT 'dedupe', (SELECT created_at FROM {schema}postroom_dedupe ORDER BY created_at LIMIT 1)
)
SELECT 'ok' AS level, 'Size and age of the tables' AS title,
	string_agg(format('%s: %s, %s', name, pg_size_pretty(pg_total_relation_size(to_regclass('{schema}postroom_' || name))),
		coalesce('oldest row from ' || to_char(at, 'YYYY-MM-DD HH24:MI:SSTZ'), 'no rows')), '; ' ORDER BY name) || '.' AS detail,
	NULL AS advice, NULL AS command, false AS fix
FROM oldest
