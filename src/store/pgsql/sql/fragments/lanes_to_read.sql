-- A part of a WITH: the current rows of the lanes. Each is read by itself, because it says where to begin.
lanes AS MATERIALIZED (
	SELECT l.* FROM unnest(:lanes) AS n CROSS JOIN LATERAL (
		SELECT *, {start_seq} AS start_seq FROM {schema}postroom_lanes AS l WHERE l.lane = n ORDER BY l.epoch DESC LIMIT 1) AS l
)
