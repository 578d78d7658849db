-- SPDX-License-Identifier: Apache-2.0
-- check: handling
-- title: Due events of the inbox are being handled
-- needs: tables
-- The oldest due event of each handler; each step reads the head of its part of the index.
WITH RECURSIVE handlers(name, due) AS (
	(SELECT namespace, next_attempt_at::timestamptz FROM {schema}postroom_inbox WHERE state IN ('scheduled', 'delayed') AND status = 'pending'
		ORDER BY namespace, next_attempt_at, seq LIMIT 1)
	UNION ALL
	SELECT n.* FROM handlers AS h CROSS JOIN LATERAL (SELECT namespace, next_attempt_at::timestamptz FROM {schema}postroom_inbox
		WHERE state IN ('scheduled', 'delayed') AND status = 'pending' AND namespace > h.name
		ORDER BY namespace, next_attempt_at, seq LIMIT 1) AS n
)
SELECT 'warning' AS level, format('No consumer handles the events of handler "%s"', name) AS title,
	format('The oldest due event has waited for %s.', date_trunc('second', clock_timestamp() - due)) AS detail,
	'The operator starts a consumer of the handler. If one runs, see its log: the handler may fail or take too long.' AS advice,
	-- For the shell: a quote inside of quotes is '\''.
	'postroom inbox list --status pending --limit 5 --handler ''' || replace(name, '''', '''\''''') || '''' AS command, false AS fix
FROM (SELECT * FROM handlers LIMIT 100) AS h WHERE due < clock_timestamp() - interval '{patience_ms} ms'
ORDER BY due LIMIT 10
