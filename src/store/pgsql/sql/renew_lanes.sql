-- Extends the leases of lanes that this worker still has, and returns these lanes.
-- doing: renewing leases
-- result: binary
-- table: outbox
-- :lanes smallint[]
-- :epochs bigint[]
-- :worker uuid
-- :lease_ms bigint
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
)
UPDATE {schema}postroom_lanes AS l
SET locked_until = (SELECT at FROM now) + :lease_ms * interval '1 millisecond'
FROM unnest(:lanes, :epochs) AS w(lane, epoch)
WHERE l.lane = w.lane AND l.epoch = w.epoch AND l.locked_by = :worker
RETURNING l.lane::bigint
