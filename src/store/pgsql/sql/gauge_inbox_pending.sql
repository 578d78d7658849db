-- Pending jobs, and since when the oldest one is due.
-- doing: collecting figures
-- :cap bigint
SELECT count(*),
	(extract(epoch FROM min(CASE WHEN claims > 0 THEN created_at
		WHEN next_attempt_at <= clock_timestamp() THEN greatest(created_at, next_attempt_at)
		END)) * 1000000)::bigint
FROM (
	SELECT claims, created_at, next_attempt_at FROM {schema}postroom_inbox
	WHERE state IN ('scheduled', 'delayed') AND status = 'pending' ORDER BY namespace, next_attempt_at, seq
	LIMIT :cap) AS c
