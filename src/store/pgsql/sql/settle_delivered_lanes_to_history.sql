-- The same as settle_delivered_lanes. The messages move to the history: the rows as the snapshot has them,
-- but only deleted ones, because a user may have locked one by hand.
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
), history AS (
	INSERT INTO {schema}postroom_history ({history_columns})
	SELECT {history_columns}
	FROM (
		SELECT {delivered_columns}
		FROM {schema}postroom_outbox AS t
		WHERE t.ctid = ANY (:ctids) AND CASE WHEN (SELECT complete FROM result) THEN true
			ELSE t.seq IN (SELECT seq FROM deleted) END) AS delivered
), lanes_released AS (
	UPDATE {schema}postroom_lanes AS l SET in_flight = NULL, locked_by = NULL, locked_until = NULL
	FROM locked
	WHERE l.lane = locked.lane AND l.epoch = locked.epoch AND (SELECT complete FROM result)
)
SELECT seqs FROM result
