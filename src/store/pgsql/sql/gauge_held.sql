-- Held messages of the outbox, in the same columns as gauge_scheduled.
-- doing: collecting figures
-- :cap bigint
SELECT count(*), count(*) FILTER (WHERE attempts > 0), 0, 0,
	(extract(epoch FROM min(created_at)) * 1000000)::bigint
FROM (
	SELECT attempts, created_at FROM {schema}postroom_outbox WHERE state = 'held' AND status = 'pending'
	ORDER BY key, topic, namespace, seq LIMIT :cap) AS c
