-- SPDX-License-Identifier: Apache-2.0
-- check: dead-rows
-- title: Vacuum keeps up with dead rows
-- needs: tables
SELECT 'warning' AS level, format('Table %s has %s dead rows', relname, n_dead_tup) AS title,
	format('It has %s live rows; the last vacuum was %s. Claims pass the dead rows before they find a live one.',
		n_live_tup, coalesce(to_char(greatest(last_vacuum, last_autovacuum), 'YYYY-MM-DD HH24:MI:SSTZ'), 'never')) AS detail,
	'The owner of the tables runs the command. If dead rows remain, see vacuum-horizon.' AS advice,
	format('VACUUM (ANALYZE) {schema}%I;', relname) AS command, false AS fix
FROM pg_stat_user_tables
WHERE relid IN (SELECT to_regclass('{schema}postroom_' || name) FROM unnest(ARRAY['outbox', 'inbox', 'lanes', 'history', 'dedupe']) AS name)
	AND n_dead_tup > 100000 AND (n_dead_tup > 2 * n_live_tup
		OR coalesce(greatest(last_vacuum, last_autovacuum), '-infinity') < clock_timestamp() - interval '1 hour')
