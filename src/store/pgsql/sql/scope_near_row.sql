-- The first message of a scope in each lane, above :marks and up to :seq, and the time of its first one
-- without a key, above :mark_us and up to :proven_us. By row: the messages in the lanes have keys.
-- Near: of a lane whose first hundred messages are all for others, nothing is known yet.
-- doing: looking how far the outbox is empty
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :mark_us bigint
-- :marks bigint[]
-- :seq bigint
-- :proven_us bigint
SELECT ARRAY(
	SELECT (SELECT seq FROM (
			SELECT seq, ({scope}) AS ours
			FROM {schema}postroom_outbox AS o
			WHERE {lane} = l.lane
				AND o.status = 'pending' AND o.state = 'ready' AND o.key IS NOT NULL
				AND o.seq >= (:marks)[l.lane] AND o.seq <= :seq
			ORDER BY o.seq LIMIT 100) AS o
		WHERE ours LIMIT 1)
	FROM generate_series(1, 64) AS l(lane) ORDER BY l.lane),
	coalesce((SELECT (extract(epoch FROM next_attempt_at) * 1000000)::bigint
		FROM {schema}postroom_outbox
		WHERE status = 'pending' AND state = 'ready' AND key IS NULL
			AND next_attempt_at >= timestamptz 'epoch' + :mark_us * interval '1 microsecond'
			AND next_attempt_at <= timestamptz 'epoch' + :proven_us * interval '1 microsecond'
			AND {scope}
		ORDER BY next_attempt_at, seq LIMIT 1), :proven_us)
