-- A part of a WITH: the lanes that this worker still has.
locked AS MATERIALIZED (
	SELECT l.lane, l.epoch, l.in_flight
	FROM unnest(:lanes, :epochs) AS w(lane, epoch)
	JOIN {schema}postroom_lanes AS l ON l.lane = w.lane AND l.epoch = w.epoch
	WHERE l.locked_by = :worker ORDER BY l.lane FOR UPDATE OF l
)
