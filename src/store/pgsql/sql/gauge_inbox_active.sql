-- Active jobs, and when the oldest one was created.
-- doing: collecting figures
-- :cap bigint
SELECT count(*), (extract(epoch FROM min(created_at)) * 1000000)::bigint
FROM (
	SELECT created_at FROM {schema}postroom_inbox WHERE status = 'active'
	ORDER BY locked_until LIMIT :cap) AS c
