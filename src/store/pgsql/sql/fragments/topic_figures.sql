-- Figures of each topic of the sample, behind WITH sample AS (...): pending, leased, failed, dead, since when
-- the oldest one is due, the time, and the number of all rows.
SELECT namespace, topic, count(*) FILTER (WHERE kind = 'pending'), count(*) FILTER (WHERE kind = 'leased'),
	count(*) FILTER (WHERE kind = 'pending' AND attempts > 0), count(*) FILTER (WHERE kind = 'dead'),
	(extract(epoch FROM min(CASE WHEN kind = 'leased' THEN created_at WHEN kind = 'pending' THEN
		CASE WHEN claims > 0 THEN created_at WHEN next_attempt_at <= clock_timestamp()
		THEN greatest(created_at, next_attempt_at) END END)) * 1000000)::bigint,
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint, sum(count(*)) OVER ()
FROM sample GROUP BY 1, 2 ORDER BY count(*) DESC, 1, 2 LIMIT :topics
