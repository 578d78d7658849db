-- Deletes attempts of messages that have left the inbox without a purge. Reads attempts from a
-- position on, and returns the last one read, and how many were deleted and read.
-- doing: tidying attempts
-- :handler text
-- :id text
-- :seq bigint
-- :limit int
WITH seen AS MATERIALIZED (
	SELECT ctid AS row_ctid, handler_name, id, seq FROM {schema}postroom_attempts
	WHERE handler_name > '' AND (handler_name, id, seq) > (:handler, :id, :seq)
	ORDER BY handler_name, id, seq LIMIT :limit
), gone AS (
	DELETE FROM {schema}postroom_attempts WHERE ctid = ANY (ARRAY(
		SELECT row_ctid FROM seen AS s
		WHERE (SELECT true FROM {schema}postroom_inbox AS i
			WHERE i.id = s.id AND i.handler_name = s.handler_name LIMIT 1) IS NULL))
	RETURNING 1
)
SELECT handler_name, id, seq, (SELECT count(*) FROM gone), (SELECT count(*) FROM seen) FROM seen
ORDER BY handler_name DESC, id DESC, seq DESC LIMIT 1
