-- SPDX-License-Identifier: Apache-2.0
-- check: autovacuum
-- title: Autovacuum is on and set for a queue
-- needs: tables
WITH ours AS (
	SELECT relname, coalesce(reloptions, '{}') AS options FROM pg_class
	WHERE oid IN (SELECT to_regclass('{schema}postroom_' || name) FROM unnest(ARRAY['outbox', 'inbox', 'lanes', 'history', 'dedupe']) AS name)
), wanted(relname, option, value) AS (VALUES
	('postroom_outbox', 'autovacuum_vacuum_scale_factor', '0'), ('postroom_outbox', 'autovacuum_vacuum_threshold', '20000'),
	('postroom_outbox', 'autovacuum_analyze_scale_factor', '0'), ('postroom_outbox', 'autovacuum_analyze_threshold', '50000'),
	('postroom_outbox', 'autovacuum_vacuum_cost_delay', '0'),
	('postroom_lanes', 'autovacuum_vacuum_scale_factor', '0'), ('postroom_lanes', 'autovacuum_vacuum_threshold', '1000'),
	('postroom_lanes', 'autovacuum_vacuum_cost_delay', '0'),
	('postroom_history', 'autovacuum_vacuum_scale_factor', '0'), ('postroom_history', 'autovacuum_vacuum_threshold', '100000')
)
SELECT 'warning' AS level, name || ' is off' AS title,
	'No table is vacuumed by itself: dead rows pile up, and claims become slower and slower.' AS detail,
	'A superuser runs the commands.' AS advice,
	format(E'ALTER SYSTEM SET %I = on;\nSELECT pg_reload_conf();', name) AS command, false AS fix
FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off'
UNION ALL
SELECT 'warning', format('Autovacuum is disabled for %s', relname),
	'Dead rows of the table pile up, and claims become slower and slower.',
	'The owner of the tables runs the command, or postroom doctor --fix.',
	format('ALTER TABLE {schema}%I RESET (autovacuum_enabled);', relname), true
FROM ours WHERE EXISTS (SELECT FROM unnest(options) AS o WHERE o LIKE 'autovacuum\_enabled=%' AND NOT split_part(o, '=', 2)::boolean)
UNION ALL
SELECT 'note', format('Table %s lacks autovacuum settings', relname),
	format('Missing: %s. A queue changes all its rows all the time, so vacuum must go by the number of changes, not by the size of the table.',
		string_agg(option, ', ')),
	'Ignore this if the table was tuned on purpose. Otherwise the owner of the tables runs the command, or postroom doctor --fix.',
	format('ALTER TABLE {schema}%I SET (%s);', relname, string_agg(option || ' = ' || value, ', ')), true
FROM ours JOIN wanted USING (relname)
WHERE NOT EXISTS (SELECT FROM unnest(options) AS o WHERE o LIKE option || '=%') GROUP BY relname
