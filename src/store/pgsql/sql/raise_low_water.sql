-- Raises the low-water marks of the lanes over what is finished up to :seq. All who wrote up to there have
-- ended, except for the transactions :passed. They have no message below the mark that they are passed from.
-- All is read before the first lane is locked, and a lane that is locked is skipped.
-- doing: looking how far lanes are empty
-- :seq bigint
-- :passed text[]
WITH open AS MATERIALIZED (
	SELECT ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())) AS ids, :passed::xid8[] AS passing
), lanes AS MATERIALIZED (
	SELECT l.*, open.passing, least(low_water_seq, (SELECT min(p.seq) FROM unnest(passed, passed_from) AS p(id, seq)
		WHERE p.id <> ALL (open.ids))) AS start_seq
	FROM open CROSS JOIN generate_series(1, 64) AS n CROSS JOIN LATERAL (
		SELECT * FROM {schema}postroom_lanes AS l WHERE l.lane = n::smallint
		ORDER BY l.epoch DESC LIMIT 1) AS l
	WHERE lease = 'lane'
), found AS MATERIALIZED (
	SELECT lane, epoch, coalesce((SELECT o.seq FROM {schema}postroom_outbox AS o
		WHERE {lane} = l.lane
			AND o.status = 'pending' AND o.state = 'ready' AND o.seq BETWEEN l.start_seq AND :seq
		ORDER BY o.seq LIMIT 1), :seq + 1) AS low_water_seq,
		nullif(passing, '{}') AS passed,
		nullif(ARRAY(SELECT coalesce(passed_from[array_position(passed, p.id)], low_water_seq)
			FROM unnest(passing) WITH ORDINALITY AS p(id, number) ORDER BY number), '{}') AS passed_from
	FROM lanes AS l WHERE low_water_seq <= :seq OR start_seq < low_water_seq
), free AS MATERIALIZED (
	SELECT found.* FROM {schema}postroom_lanes AS l
	JOIN found ON found.lane = l.lane AND found.epoch = l.epoch
		AND (found.low_water_seq > l.low_water_seq OR found.passed IS DISTINCT FROM l.passed)
	ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED
)
UPDATE {schema}postroom_lanes AS l
SET low_water_seq = free.low_water_seq, passed = free.passed, passed_from = free.passed_from
FROM free WHERE l.lane = free.lane AND l.epoch = free.epoch
