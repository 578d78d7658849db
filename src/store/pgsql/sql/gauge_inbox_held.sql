-- Held jobs.
-- doing: collecting figures
-- :cap bigint
SELECT count(*) FROM (
	SELECT FROM {schema}postroom_inbox WHERE state = 'held' AND status = 'pending'
	ORDER BY key, topic, namespace, seq LIMIT :cap) AS c
