-- Whether a scheduled message is due.
EXISTS (SELECT FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state IN ('scheduled', 'delayed')
		AND next_attempt_at <= (SELECT at FROM now))
