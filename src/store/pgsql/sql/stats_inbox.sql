-- Exact counts of the inbox. A delayed message that was never tried is not old; a delayed one that is
-- due is as old as its due time.
-- doing: counting the inbox
SELECT NULL, handler_name,
	count(*) FILTER (WHERE status = 'pending'),
	count(*) FILTER (WHERE status IN ('processing', 'active')),
	count(*) FILTER (WHERE status = 'pending' AND attempts > 0),
	count(*) FILTER (WHERE status IN ('delivered', 'completed')),
	count(*) FILTER (WHERE status = 'dead'),
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	(extract(epoch FROM min(CASE
		WHEN status IN ('processing', 'active') OR (status = 'pending' AND claims > 0) THEN created_at
		WHEN status = 'pending' AND next_attempt_at <= clock_timestamp()
		THEN greatest(created_at, next_attempt_at) END)) * 1000000)::bigint
FROM {schema}postroom_inbox WHERE true{filter}
GROUP BY 1, 2 ORDER BY 1, 2
