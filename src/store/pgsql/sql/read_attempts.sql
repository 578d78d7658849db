-- The last ten failed attempts of a message, oldest first.
-- doing: reading attempts
-- :handler text
-- :id text
SELECT number, (extract(epoch FROM at) * 1000000)::bigint, duration_ms, worker, sink, error
FROM (
	SELECT * FROM {schema}postroom_attempts WHERE handler_name = :handler AND id = :id
	ORDER BY handler_name DESC, id DESC, seq DESC LIMIT 10
) AS newest ORDER BY seq
