-- Records failed attempts and keeps the last ten of each message. The handler is '' in the outbox.
-- doing: recording attempts
-- :handlers text[]
-- :ids text[]
-- :numbers int[]
-- :durations_ms bigint[]
-- :errors text[]
-- :worker uuid
-- :sink text
WITH failed AS MATERIALIZED (
	SELECT * FROM unnest(:handlers, :ids, :numbers, :durations_ms, :errors)
		AS v(handler, id, number, duration_ms, error)
), trimmed AS (
	-- Nine, because this statement does not see the row that it inserts.
	DELETE FROM {schema}postroom_attempts WHERE ctid = ANY (ARRAY(
		SELECT a.row_ctid FROM failed AS v CROSS JOIN LATERAL (
			SELECT ctid AS row_ctid FROM {schema}postroom_attempts AS a
			WHERE a.handler_name = v.handler AND a.id = v.id
			ORDER BY a.handler_name, a.id, a.seq DESC OFFSET 9) AS a))
)
INSERT INTO {schema}postroom_attempts (handler_name, id, number, duration_ms, worker, sink, error)
SELECT handler, id, number, nullif(duration_ms, -1), :worker, :sink, error FROM failed
