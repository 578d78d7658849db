-- Dead jobs.
-- doing: collecting figures
-- :cap bigint
SELECT count(*) FROM (
	SELECT FROM {schema}postroom_inbox WHERE status = 'dead' ORDER BY seq LIMIT :cap) AS c
