-- Settles messages of lanes that this worker still has, and returns the seq of each. Delivered messages are
-- deleted: by ctid, checked by seq, and looked up one by one if the table was rewritten since. The
-- conditions of that DELETE fit no index, so it has one possible plan.
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
	RETURNING t.seq
), deleted_elsewhere AS (
	DELETE FROM {schema}postroom_outbox AS t WHERE ctid = ANY (ARRAY(
		SELECT {find_ready}
		FROM unnest(:done_lanes, :done_seqs) AS v(lane, seq) JOIN locked USING (lane)
		WHERE (SELECT count(*) FROM deleted) < cardinality(:done_seqs)))
	RETURNING t.seq
), {settle_failed}
