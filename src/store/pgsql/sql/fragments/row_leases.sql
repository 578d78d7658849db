-- Whether the database has row leases.
(SELECT lease = 'row' FROM (SELECT * FROM {schema}postroom_lanes AS l
	WHERE l.lane = 1::smallint ORDER BY l.epoch DESC LIMIT 1) AS one)
