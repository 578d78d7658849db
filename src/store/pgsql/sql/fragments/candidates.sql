-- A part of a WITH: the first messages of each locked lane. A scan from resume positions reads only
-- messages with a key that were visible when the heads were read.
candidates AS MATERIALIZED (
	SELECT locked.epoch, o.* FROM locked CROSS JOIN LATERAL (
		SELECT locked.lane, ctid AS row_ctid, next_attempt_at,
			next_attempt_at > (SELECT at FROM now) OR attempts >= :max_attempts AS early,
			{printed_bytes} AS bytes,
			{columns}, headers, payload, body
		FROM {schema}postroom_outbox AS o
		WHERE {lane} = locked.lane
			AND o.status = 'pending' AND o.state = 'ready'
			AND o.seq >= locked.head AND (key IS NULL OR {visible_at_heads})
			AND {scope}
		ORDER BY o.seq LIMIT :lane_quota) AS o
	LIMIT :limit
)
