-- Settles a batch of which every message was delivered, and releases its lanes. All ctids are read at once,
-- and each row is checked by its seq: a row of the batch at a ctid of the batch is the version that was
-- claimed. Deletes nothing if a lane is lost, and releases no lane if a message is missing.
-- doing: settling messages
-- result: binary
-- table: outbox
-- :lanes smallint[]
-- :epochs bigint[]
-- :seqs bigint[] binary
-- :ctids tid[] binary
-- :worker uuid
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), {settled_lanes}, deleted AS (
	DELETE FROM {schema}postroom_outbox AS t
	WHERE t.ctid = ANY (
			CASE WHEN (SELECT count(*) FROM locked) = cardinality(:lanes) THEN :ctids END)
		AND t.seq = (:seqs)[width_bucket(t.seq, :seqs)]
	RETURNING t.seq
), result AS MATERIALIZED (
	SELECT array_agg(seq) AS seqs, count(*) = cardinality(:seqs) AS complete FROM deleted
), lanes_released AS (
	UPDATE {schema}postroom_lanes AS l SET in_flight = NULL, locked_by = NULL, locked_until = NULL
	FROM locked
	WHERE l.lane = locked.lane AND l.epoch = locked.epoch AND (SELECT complete FROM result)
)
SELECT seqs FROM result
