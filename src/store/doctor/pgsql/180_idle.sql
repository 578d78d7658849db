-- SPDX-License-Identifier: Apache-2.0
-- check: idle-in-transaction
-- title: No session of this database idles in a transaction
-- sees: sessions
SELECT 'warning' AS level, format('Session %s idles in a transaction', pid) AS title,
	format('%s; open for %s. It keeps its locks, and the next snapshot that it takes holds back vacuum.',
		concat_ws(', ', nullif(application_name, ''), usename, client_addr), date_trunc('second', clock_timestamp() - xact_start)) AS detail,
	'Find out who owns it first. A superuser, or its owner, then runs the command. idle_in_transaction_session_timeout prevents it.' AS advice,
	format('SELECT pg_terminate_backend(%s);', pid) AS command, false AS fix
FROM pg_stat_activity
WHERE state LIKE 'idle in transaction%' AND datname = current_database() AND pid <> pg_backend_pid()
	AND coalesce(backend_xmin, backend_xid) IS NULL AND clock_timestamp() - xact_start >= interval '{patience_ms} ms'
ORDER BY xact_start LIMIT 5
