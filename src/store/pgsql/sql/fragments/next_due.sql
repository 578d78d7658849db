-- Three columns: whether a keyed message, or one in a free lane, is due or a claim makes it scheduled;
-- whether messages are held or have an expired lease, which may have to wait for others; in how many
-- milliseconds the next message is due or the next lease expires. OFFSET 0 keeps each lane a lookup.
EXISTS (SELECT FROM {all_lanes}
		WHERE lease = 'row' AND EXISTS (
			SELECT FROM {schema}postroom_outbox AS o
			WHERE {lane} = l.lane
				AND o.seq >= greatest(0, (:scope_low_water_seqs)[l.lane])
				AND status = 'pending' AND state = 'ready' AND key IS NOT NULL
				AND {scope}
			OFFSET 0))
	OR EXISTS (SELECT FROM {all_lanes}
		WHERE lease = 'lane' AND locked_by IS NULL AND EXISTS (
			SELECT FROM {schema}postroom_outbox AS o
			WHERE {lane} = l.lane
				AND o.seq >= greatest(l.start_seq, (:scope_low_water_seqs)[l.lane])
				AND status = 'pending' AND state = 'ready'
				AND {scope}
			OFFSET 0)),
EXISTS (SELECT FROM {schema}postroom_outbox
		WHERE state = 'held' AND status = 'pending' AND {scope})
	OR EXISTS (SELECT FROM {schema}postroom_outbox
		WHERE status = 'processing' AND locked_until <= (SELECT clock_timestamp()) AND {scope})
	OR EXISTS (SELECT FROM {schema}postroom_lanes WHERE locked_until <= (SELECT clock_timestamp())),
ceil(extract(epoch FROM least(
	(SELECT next_attempt_at FROM {schema}postroom_outbox
		WHERE status = 'pending' AND state = 'ready' AND key IS NULL
			AND next_attempt_at >= timestamptz 'epoch' + :scope_low_water_us * interval '1 microsecond'
			AND {scope}
			AND {row_leases}
		ORDER BY next_attempt_at, seq LIMIT 1),
	(SELECT next_attempt_at FROM {schema}postroom_outbox
		WHERE status = 'pending' AND state IN ('scheduled', 'delayed') AND {scope}
		ORDER BY next_attempt_at, seq LIMIT 1),
	(SELECT locked_until FROM {schema}postroom_outbox
		WHERE status = 'processing' AND locked_until > (SELECT clock_timestamp()) AND {scope}
		ORDER BY locked_until LIMIT 1),
	(SELECT min(locked_until) FROM {schema}postroom_lanes
		WHERE locked_until > (SELECT clock_timestamp()))) - clock_timestamp()) * 1000)::bigint
