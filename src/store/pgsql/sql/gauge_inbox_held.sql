-- Held jobs.
-- doing: collecting figures
-- :cap bigint
SELECT count(*) FROM (
	SELECT FROM {schema}postroom_inbox WHERE apart = 2 AND status = 'pending'
	ORDER BY key, topic, namespace, seq LIMIT :cap) AS c
