-- When the oldest became due, of messages with a key: the first one of each lane, from its low-water mark on.
-- doing: collecting figures
SELECT (extract(epoch FROM min(greatest(o.created_at, o.next_attempt_at))) * 1000000)::bigint
FROM {all_lanes} CROSS JOIN LATERAL (
	SELECT created_at, next_attempt_at FROM {schema}postroom_outbox AS o
	WHERE {lane} = l.lane AND o.seq >= l.start_seq
		AND o.key IS NOT NULL AND o.state = 'ready' AND o.status = 'pending'
	ORDER BY o.seq LIMIT 1) AS o
