-- Messages of the outbox with row leases, and when the oldest one was created.
-- doing: collecting figures
-- :cap bigint
SELECT count(*), (extract(epoch FROM min(created_at)) * 1000000)::bigint
FROM (
	SELECT created_at FROM {schema}postroom_outbox WHERE status = 'processing'
	ORDER BY locked_until LIMIT :cap) AS c
