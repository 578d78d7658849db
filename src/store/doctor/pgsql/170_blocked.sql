-- SPDX-License-Identifier: Apache-2.0
-- check: blocked
-- title: No session blocks the tables
-- sees: sessions
-- One finding for each blocker. A blocker that waits itself is not the cause.
WITH locks AS (
	SELECT l.pid, l.granted, l.mode, c.relname, a.query_start, a.xact_start
	FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) JOIN pg_class AS c ON c.oid = l.relation
	WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND c.relname LIKE 'postroom\_%' AND l.pid <> pg_backend_pid()
), waiting AS (
	SELECT l.*, blocker FROM locks AS l CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS blocker WHERE NOT granted
), blockers(pid, waiters, relname, since) AS (
	SELECT blocker, count(DISTINCT pid), min(relname), min(query_start) FROM waiting
	WHERE blocker NOT IN (SELECT pid FROM waiting) GROUP BY blocker
	UNION ALL
	SELECT pid, 0, min(relname), min(xact_start) FROM locks
	WHERE granted AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
		AND pid NOT IN (SELECT blocker FROM waiting) GROUP BY pid
)
SELECT 'warning' AS level, format('Session %s blocks %s', b.pid, b.relname) AS title,
	format('%s; %s. %s, for %s. Producers or relays cannot work until its transaction ends.',
		concat_ws(', ', nullif(a.application_name, ''), a.usename, a.client_addr, a.state),
		coalesce(nullif(left(a.query, 60), ''), 'no query'),
		CASE WHEN b.waiters > 0 THEN format('Sessions that wait for it: %s', b.waiters) ELSE 'It holds a lock' END,
		date_trunc('second', clock_timestamp() - b.since)) AS detail,
	'Find out who owns the session first. A superuser, or its owner, then runs the command.' AS advice,
	format('SELECT pg_terminate_backend(%s);', b.pid) AS command, false AS fix
FROM blockers AS b LEFT JOIN pg_stat_activity AS a USING (pid)
WHERE clock_timestamp() - b.since > interval '{lock_patience_ms} ms'
ORDER BY b.since LIMIT 5
