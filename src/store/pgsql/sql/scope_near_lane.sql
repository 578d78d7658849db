-- The first message of a scope in each lane, above :marks and up to :seq; :proven_us, if it is above :mark_us.
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
				AND o.status = 'pending' AND o.state = 'ready'
				AND o.seq >= (:marks)[l.lane] AND o.seq <= :seq
			ORDER BY o.seq LIMIT 100) AS o
		WHERE ours LIMIT 1)
	FROM generate_series(1, 64) AS l(lane) ORDER BY l.lane),
	greatest(:mark_us, :proven_us)
