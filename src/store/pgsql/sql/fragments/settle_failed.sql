-- The end of a settle by lane: retries, dead-letters and releases, and then the lanes themselves. A message
-- that was not found stays in flight, because a user may have locked it by hand, until :abandon.
-- Dispositions: 0 release, 2 retry, 3 dead.
found AS MATERIALIZED (
	SELECT v.*, {find_ready} AS row_ctid
	FROM unnest(:failed_lanes, :failed_seqs, :dispositions, :reasons, :delays_ms)
		AS v(lane, seq, disposition, reason, delay_ms) JOIN locked USING (lane)
), changed AS (
	UPDATE {schema}postroom_outbox AS t SET
		status = CASE v.disposition WHEN 3 THEN 'dead' ELSE 'pending' END,
		attempts = attempts + (v.disposition > 0)::int, claims = claims + (v.disposition > 0)::int,
		state = CASE WHEN v.disposition > 0 THEN 'scheduled'::{schema}postroom_state ELSE 'ready' END,
		next_attempt_at = CASE v.disposition
			WHEN 2 THEN (SELECT at FROM now) + v.delay_ms * interval '1 millisecond'
			ELSE next_attempt_at END,
		last_error = v.reason,
		last_attempt_at = CASE WHEN v.disposition > 0 THEN (SELECT at FROM now)
			ELSE last_attempt_at END,
		updated_at = (SELECT at FROM now)
	FROM found AS v
	WHERE t.seq = v.seq AND t.ctid = ANY (ARRAY(
		SELECT row_ctid FROM found
		WHERE disposition > 1 OR (disposition = 0 AND reason IS NOT NULL)))
	RETURNING t.seq
), settled AS MATERIALIZED (
	SELECT seq FROM deleted UNION ALL SELECT seq FROM deleted_elsewhere
	UNION ALL SELECT seq FROM changed
	UNION ALL SELECT seq FROM found WHERE disposition = 0 AND reason IS NULL
), remaining AS MATERIALIZED (
	SELECT lane, epoch, nullif(ARRAY(
		SELECT unnest(in_flight) EXCEPT SELECT seq FROM settled
		EXCEPT SELECT unnest(:done_seqs || :failed_seqs) WHERE :abandon), '{}') AS seqs
	FROM locked
), lanes_released AS (
	UPDATE {schema}postroom_lanes AS l SET in_flight = remaining.seqs,
		locked_by = CASE WHEN remaining.seqs IS NOT NULL THEN l.locked_by END,
		locked_until = CASE WHEN remaining.seqs IS NOT NULL THEN l.locked_until END
	FROM remaining WHERE l.lane = remaining.lane AND l.epoch = remaining.epoch
)
SELECT array_agg(seq) FROM settled
