-- The columns that a claim by row sets besides the status: a lease, or the error of a dead letter.
locked_by = CASE WHEN attempts < :max_attempts THEN :worker END,
locked_until = CASE WHEN attempts < :max_attempts
	THEN (SELECT at FROM now) + :lease_ms * interval '1 millisecond' END,
last_attempt_at = CASE WHEN attempts < :max_attempts THEN (SELECT at FROM now)
	ELSE last_attempt_at END,
last_error = CASE WHEN attempts < :max_attempts THEN last_error
	ELSE coalesce(:dead_error, last_error) END,
attempts = attempts + (attempts < :max_attempts)::int, claims = claims + 1,
state = 'scheduled', updated_at = (SELECT at FROM now)
