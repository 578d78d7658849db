-- Turns expired lane leases into expired leases of their messages, each with one counted attempt.
-- doing: taking over lanes
-- table: outbox
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), expired AS MATERIALIZED (
	SELECT lane, locked_by, locked_until, in_flight FROM {schema}postroom_lanes
	WHERE locked_until < (SELECT at FROM now) FOR UPDATE SKIP LOCKED
), reclaimable AS (
	UPDATE {schema}postroom_outbox AS t SET status = 'processing', attempts = attempts + 1,
		claims = claims + 1, state = 'scheduled', locked_by = e.locked_by,
		locked_until = e.locked_until, last_attempt_at = e.locked_until,
		updated_at = (SELECT at FROM now)
	FROM expired AS e WHERE {lane} = e.lane AND t.ctid = ANY (ARRAY(
		SELECT {find_ready}
		FROM (SELECT lane, unnest(in_flight) AS seq FROM expired) AS v))
)
UPDATE {schema}postroom_lanes SET locked_by = NULL, locked_until = NULL, in_flight = NULL, epoch = epoch + 1
WHERE lane IN (SELECT lane FROM expired)
