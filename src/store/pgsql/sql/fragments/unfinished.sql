-- Held rows do not count; their blocker does.
EXISTS (SELECT FROM {schema}{table} WHERE status = '{active}' AND {scope})
OR EXISTS (SELECT FROM {schema}{table}
	WHERE status = 'pending' AND state IN ('scheduled', 'delayed')
		AND (next_attempt_at <= (SELECT clock_timestamp()) OR claims > 0) AND {scope})
