-- The same as settle_lanes. Delivered messages move to the history.
-- doing: settling messages
-- result: binary
-- table: outbox
-- :lanes smallint[]
-- :epochs bigint[]
-- :done_lanes smallint[]
-- :done_seqs bigint[] binary
-- :done_ctids tid[] binary
-- :worker uuid
-- :abandon boolean
-- :failed_lanes smallint[]
-- :failed_seqs bigint[]
-- :dispositions int[]
-- :reasons text[]
-- :delays_ms bigint[]
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), {settled_lanes}, deleted AS (
	DELETE FROM {schema}postroom_outbox AS t
	USING unnest(:done_lanes, :done_seqs, :done_ctids) AS v(lane, seq, row_ctid)
	WHERE v.lane = ANY (ARRAY(SELECT lane FROM locked)) AND t.ctid = v.row_ctid
		AND CASE WHEN t.seq = v.seq THEN t.status = 'pending' AND t.state = 'ready' END
	RETURNING
		{delivered_columns}
), deleted_elsewhere AS (
	DELETE FROM {schema}postroom_outbox AS t WHERE ctid = ANY (ARRAY(
		SELECT {find_ready}
		FROM unnest(:done_lanes, :done_seqs) AS v(lane, seq) JOIN locked USING (lane)
		WHERE (SELECT count(*) FROM deleted) < cardinality(:done_seqs)))
	RETURNING
		{delivered_columns}
), history AS (
	INSERT INTO {schema}postroom_history ({history_columns})
	SELECT {history_columns}
	FROM (SELECT * FROM deleted UNION ALL SELECT * FROM deleted_elsewhere) AS delivered
), {settle_failed}
