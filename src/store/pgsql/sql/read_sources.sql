-- The positions that a handler has read, and those whose rows may have been purged.
-- doing: reading how far sources were read
-- :handler text
SELECT s.source, max(s.position),
	coalesce(max(s.position) FILTER (WHERE s.started_at <= p.completed_at), ''),
	coalesce((extract(epoch FROM p.completed_at) * 1000000)::bigint, 0)
FROM {schema}postroom_sources AS s LEFT JOIN {schema}postroom_inbox_purged AS p USING (handler_name)
WHERE s.handler_name = :handler
GROUP BY s.source, p.completed_at
