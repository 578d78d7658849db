-- Scheduled messages of the outbox: all, failed, delayed and never tried, due, and since when the
-- oldest one is due.
-- doing: collecting figures
-- :cap bigint
SELECT count(*), count(*) FILTER (WHERE attempts > 0),
	count(*) FILTER (WHERE attempts = 0 AND next_attempt_at > clock_timestamp()),
	count(*) FILTER (WHERE next_attempt_at <= clock_timestamp()),
	(extract(epoch FROM min(CASE WHEN claims > 0 THEN created_at
		WHEN next_attempt_at <= clock_timestamp() THEN greatest(created_at, next_attempt_at)
		END)) * 1000000)::bigint
FROM (
	SELECT attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE state IN ('scheduled', 'delayed') AND status = 'pending' ORDER BY next_attempt_at, seq LIMIT :cap) AS c
