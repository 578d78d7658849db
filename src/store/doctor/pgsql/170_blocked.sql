-- SPDX-License-Identifier: Apache-2.0
-- check: blocked
-- title: No session blocks the tables
-- sees: sessions
-- One finding for each blocker. A blocker that waits itself is not the cause. A prepared transaction has no process: its pid is 0.
WITH locks AS (
	SELECT coalesce(l.pid, 0) AS pid, l.granted, l.mode, l.locktype, c.relname, a.query_start,
		coalesce(a.xact_start, (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database())) AS xact_start
	FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid) JOIN pg_class AS c ON c.oid = l.relation
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
	WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND c.relname LIKE 'postroom\_%' AND quote_ident(n.nspname) || '.' = '{schema}' AND l.pid IS DISTINCT FROM pg_backend_pid()
), waiting AS (
	SELECT l.*, blocker FROM (
		SELECT pid, relname, query_start FROM locks WHERE NOT granted
		UNION
		-- A row of another transaction, such as the same dedupe key: the session waits for the end of that transaction.
		SELECT a.pid, o.relname, a.query_start FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
			CROSS JOIN LATERAL (SELECT min(relname) AS relname, bool_or(locktype = 'tuple') AS on_row FROM locks WHERE pid = a.pid) AS o
		WHERE l.locktype = 'transactionid' AND NOT l.granted AND o.relname IS NOT NULL AND (o.on_row OR a.query ILIKE '%postroom%')
	) AS l CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS blocker
), blockers(pid, waiters, relname, since) AS (
	SELECT blocker, count(DISTINCT pid), min(relname), min(query_start) FROM waiting
	WHERE blocker NOT IN (SELECT pid FROM waiting) GROUP BY blocker
	UNION ALL
	SELECT pid, 0, min(relname), min(xact_start) FROM locks
	WHERE granted AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
		AND locktype = 'relation' AND pid NOT IN (SELECT blocker FROM waiting) GROUP BY pid
)
SELECT 'warning' AS level, format('%s blocks %s', coalesce('Session ' || nullif(b.pid, 0), 'A prepared transaction'), b.relname) AS title,
	format('%s. %s, for %s. Producers or relays cannot work until its transaction ends.',
		CASE WHEN b.pid = 0 THEN 'It keeps its locks until it is committed or rolled back' ELSE
			concat_ws(', ', nullif(a.application_name, ''), a.usename, a.client_addr, a.state) || '; ' ||
			coalesce(nullif(left(a.query, 60), ''), 'no query') END,
		CASE WHEN b.waiters > 0 THEN format('Sessions that wait for it: %s', b.waiters) ELSE 'It holds a lock' END,
		date_trunc('second', clock_timestamp() - b.since)) AS detail,
	CASE WHEN b.pid = 0 THEN 'The command lists the prepared transactions. The administrator of their transaction manager commits or rolls back the oldest.'
		ELSE 'Find out who owns the session first. A superuser, or its owner, then runs the command.' END AS advice,
	CASE WHEN b.pid = 0 THEN 'SELECT gid, prepared, owner FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared;'
		ELSE format('SELECT pg_terminate_backend(%s);', b.pid) END AS command, false AS fix
FROM blockers AS b LEFT JOIN pg_stat_activity AS a USING (pid)
WHERE clock_timestamp() - b.since > interval '{lock_patience_ms} ms'
ORDER BY b.since LIMIT 5
