-- A part of a WITH: locks the lanes with the earliest heads, if they are free and unchanged since the
-- snapshot. With more workers, each gets fewer lanes.
locked AS MATERIALIZED (
	SELECT l.lane, s.head, l.epoch + 1 AS epoch
	FROM heads AS s JOIN {schema}postroom_lanes AS l ON l.lane = s.lane AND l.epoch = s.epoch
	WHERE s.head IS NOT NULL AND l.locked_by IS NULL
	ORDER BY s.head
	LIMIT least(:lanes_wanted, CASE WHEN :lane_quota < :limit AND cardinality(:lanes) = 64 THEN (
		SELECT greatest(32 / (1 + count(DISTINCT locked_by)), 1) FROM lanes
		WHERE locked_by <> :worker) END)
	FOR UPDATE OF l SKIP LOCKED
)
