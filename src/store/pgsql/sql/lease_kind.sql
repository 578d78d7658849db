-- Whether lanes are leased, and whether a lease of a lane has expired.
-- doing: reading the lease kind
SELECT lease = 'lane', EXISTS (
	SELECT FROM generate_series(1, 64) AS n CROSS JOIN LATERAL (
		SELECT locked_until FROM {schema}postroom_lanes AS l WHERE l.lane = n::smallint
		ORDER BY l.epoch DESC LIMIT 1) AS l
	WHERE locked_until < clock_timestamp())
FROM {schema}postroom_lanes WHERE lane = 1 ORDER BY epoch DESC LIMIT 1
