-- SPDX-License-Identifier: Apache-2.0
-- check: expired-leases
-- title: No expired lease waits for a relay
-- needs: tables
WITH expired AS (
	SELECT 'outbox' AS box, locked_until FROM (SELECT locked_until FROM {schema}postroom_outbox
		WHERE status = 'processing' AND locked_until < clock_timestamp() - interval '{lease_patience_ms} ms'
		ORDER BY locked_until LIMIT 1000) AS o
	UNION ALL SELECT 'inbox', locked_until FROM (SELECT locked_until FROM {schema}postroom_inbox
		WHERE status = 'active' AND locked_until < clock_timestamp() - interval '{lease_patience_ms} ms'
		ORDER BY locked_until LIMIT 1000) AS i
	UNION ALL SELECT 'outbox (lanes)', locked_until FROM {schema}postroom_lanes
		WHERE locked_until < clock_timestamp() - interval '{lease_patience_ms} ms'
)
SELECT 'warning' AS level, format('%s%s expired leases in the %s', count(*), CASE WHEN count(*) = 1000 THEN ' or more' END, box) AS title,
	format('The oldest expired %s ago. Their worker died, and no relay or consumer with their scope took them over.',
		date_trunc('second', clock_timestamp() - min(locked_until))) AS detail,
	'Start a relay (or a consumer of the handler) whose namespace, topic, tenant and routes include these messages.' AS advice,
	CASE WHEN box = 'inbox' THEN 'postroom inbox list --status active' ELSE 'postroom list --status processing' END AS command, false AS fix
FROM expired GROUP BY box
