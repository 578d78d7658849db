-- Unblocks rows that are held without a blocker. Goes from key to key, not from row to row.
-- doing: unblocking keys
-- table: outbox inbox
-- :dead_block boolean
WITH RECURSIVE keys AS (
	(SELECT key, topic, namespace FROM {schema}{table}
	WHERE status = 'pending' AND state = 'held' ORDER BY key, topic, namespace LIMIT 1)
	UNION ALL
	SELECT n.* FROM keys AS k CROSS JOIN LATERAL (
		SELECT key, topic, namespace FROM {schema}{table}
		WHERE status = 'pending' AND state = 'held'
			AND (key, topic, namespace) > (k.key, k.topic, k.namespace)
		ORDER BY key, topic, namespace LIMIT 1) AS n
)
{unblock}
	AND (NOT :dead_block OR (SELECT true FROM {schema}{table}
		WHERE key = k.key AND topic = k.topic AND namespace = k.namespace AND status = 'dead'
		LIMIT 1) IS NULL)))
