-- SPDX-License-Identifier: Apache-2.0
-- check: statistics
-- title: The planner has statistics
-- needs: tables
SELECT 'note' AS level, format('Table %s was never analyzed', relname) AS title,
	'The planner guesses the number of rows, and operator queries may be slow. Claims do not depend on it.' AS detail,
	'The owner of the tables runs the command, or postroom doctor --fix.' AS advice,
	format('ANALYZE {schema}%I;', relname) AS command, true AS fix
FROM pg_stat_user_tables
WHERE relid IN (SELECT to_regclass('{schema}postroom_' || name) FROM unnest(ARRAY['outbox', 'inbox', 'history', 'dedupe']) AS name)
	AND coalesce(last_analyze, last_autoanalyze) IS NULL AND n_live_tup > 10000 AND pg_relation_size(relid) > 1048576
