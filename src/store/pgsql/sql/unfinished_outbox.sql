-- Whether a message is in flight, due, or waits for its retry.
-- doing: looking for work
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
SELECT {unfinished}
	OR EXISTS (SELECT FROM {schema}postroom_outbox
		WHERE status = 'pending' AND state = 'ready' AND key IS NULL
			AND next_attempt_at <= (SELECT clock_timestamp()) AND {row_leases} AND {scope})
	OR EXISTS (SELECT FROM {schema}postroom_outbox
		WHERE status = 'pending' AND state = 'ready' AND key IS NOT NULL
			AND next_attempt_at <= (SELECT clock_timestamp()) AND {row_leases} AND {scope})
	OR EXISTS (SELECT FROM {all_lanes}
		WHERE lease = 'lane' AND EXISTS (
			SELECT FROM {schema}postroom_outbox AS o
			WHERE {lane} = l.lane AND o.seq >= l.start_seq
				AND status = 'pending' AND state = 'ready'
				AND next_attempt_at <= (SELECT clock_timestamp()) AND {scope}
			OFFSET 0))
