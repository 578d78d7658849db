-- The current rows of all lanes, AS l.
generate_series(1, 64) AS n CROSS JOIN LATERAL (
	SELECT *, {start_seq} AS start_seq FROM {schema}postroom_lanes AS l WHERE l.lane = n::smallint
	ORDER BY l.epoch DESC LIMIT 1) AS l
