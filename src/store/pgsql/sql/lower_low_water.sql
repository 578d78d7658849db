-- Lowers the low-water marks of some lanes to the first ready message below, if there is one.
-- All is read before the first lane is locked, and a lane that is locked is skipped.
-- doing: looking for messages below low-water marks
-- :lanes smallint[]
WITH found AS MATERIALIZED (
	SELECT lane, epoch, (SELECT o.seq FROM {schema}postroom_outbox AS o
		WHERE {lane} = l.lane
			AND o.status = 'pending' AND o.state = 'ready' AND o.seq < l.low_water_seq
		ORDER BY o.seq LIMIT 1) AS low_water_seq
	FROM unnest(:lanes) AS n CROSS JOIN LATERAL (
		SELECT * FROM {schema}postroom_lanes AS l WHERE l.lane = n ORDER BY l.epoch DESC LIMIT 1) AS l
	WHERE lease = 'lane'
), free AS MATERIALIZED (
	SELECT found.* FROM {schema}postroom_lanes AS l
	JOIN found ON found.lane = l.lane AND found.epoch = l.epoch AND found.low_water_seq < l.low_water_seq
	ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED
)
UPDATE {schema}postroom_lanes AS l SET low_water_seq = free.low_water_seq
FROM free WHERE l.lane = free.lane AND l.epoch = free.epoch
