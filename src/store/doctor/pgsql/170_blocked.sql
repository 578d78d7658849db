-- SPDX-License-Identifier: Apache-2.0
-- check: blocked
-- title: Nobody blocks the tables
-- needs: tables
-- sees: sessions
SELECT 'warning' AS level, format('Session %s waits for a lock on %s', a.pid, c.relname) AS title,
	format('%s wants %s and has waited for %s. It is blocked by: %s.', coalesce(nullif(a.application_name, ''), a.usename::text), l.mode,
		date_trunc('second', clock_timestamp() - a.query_start), (SELECT string_agg(concat_ws(' ', b.pid, b.application_name, b.state, left(b.query, 60)), '; ')
			FROM pg_stat_activity AS b WHERE b.pid = ANY (pg_blocking_pids(a.pid)))) AS detail,
	'Find out who owns the blocking session first. A superuser, or its owner, then runs the command.' AS advice,
	(SELECT string_agg(format('SELECT pg_terminate_backend(%s);', pid), E'\n') FROM unnest(pg_blocking_pids(a.pid)) AS pid) AS command, false AS fix
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) JOIN pg_class AS c ON c.oid = l.relation
WHERE NOT l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND c.relname LIKE 'postroom\_%' AND clock_timestamp() - a.query_start > interval '{lock_patience_ms} ms'
ORDER BY a.query_start LIMIT 5
