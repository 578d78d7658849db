-- The end of a scan of lanes: leases the lanes of the fitting messages. Returns one row of facts about the
-- scan, and the messages: number of candidates, snapshot, where the lanes were read from, open transactions
-- that these marks have passed, whether one of them has ended, whether a scheduled message is due,
-- whether a lease has expired, whether there is a blocker.
leased AS (
	UPDATE {schema}postroom_lanes AS l SET locked_by = :worker,
		locked_until = (SELECT at FROM now) + :lease_ms * interval '1 millisecond',
		epoch = f.epoch, in_flight = f.seqs
	FROM (SELECT lane, epoch, array_agg(seq) AS seqs FROM fitting GROUP BY lane, epoch) AS f
	WHERE l.lane = f.lane AND l.epoch = f.epoch - 1
), claimed AS NOT MATERIALIZED (
	SELECT {columns}, CASE WHEN {is_large} THEN NULL ELSE headers END,
		CASE WHEN {is_large} THEN NULL ELSE payload END,
		CASE WHEN {is_large} THEN NULL ELSE body END,
		CASE WHEN {is_large} THEN coalesce(bytes, 1)::bigint ELSE 0 END AS withheld,
		NULL::boolean AS dead_lettered, lane::int AS of_lane, epoch AS of_epoch,
		next_attempt_at AS due, row_ctid
	FROM fitting
)
SELECT c.*, n.* FROM (
	SELECT count(*) AS number, pg_current_snapshot()::text AS snapshot,
		(SELECT array_agg(start_seq ORDER BY lane)::text FROM lanes) AS low_water_seqs,
		(SELECT array_agg(DISTINCT xid)::text FROM lanes CROSS JOIN unnest(passed) AS xid
			WHERE xid = ANY ({open_transactions}::xid8[])) AS passed,
		(SELECT coalesce(bool_or(start_seq < low_water_seq), false) FROM lanes) AS passed_ended,
		{any_due} AS due,
		EXISTS (SELECT FROM {schema}postroom_outbox
			WHERE status = 'processing' AND locked_until < (SELECT at FROM now))
		OR EXISTS (SELECT FROM lanes WHERE locked_until < (SELECT at FROM now)) AS expired,
		(SELECT present FROM any_blocker) AS any_blocker
	FROM candidates) AS n LEFT JOIN claimed AS c ON false
UNION ALL
SELECT *, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM claimed
