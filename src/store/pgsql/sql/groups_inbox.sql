-- Dead rows of the inbox by cause and sink. Reads the newest 100,000 in the order of their index; the last
-- but one column says whether there are more. Errors are not kept in memory, only their fingerprints.
-- doing: grouping dead messages
-- :limit int
WITH rows AS MATERIALIZED (
	SELECT row_number() OVER () AS n, d.* FROM (
		SELECT id, coalesce(topic, handler_name)::text AS topic, handler_name::text AS handler, updated_at AS at,
			coalesce({schema}postroom_fingerprint(last_error), '') AS cause,
			coalesce((SELECT sink FROM (
				SELECT handler_name AS h, id AS i, seq AS s, sink FROM {schema}postroom_attempts) AS a
				WHERE h = handler_name AND i = id
				ORDER BY h DESC, i DESC, s DESC LIMIT 1), '') AS sink
		FROM {schema}postroom_inbox WHERE status = 'dead'{filter}
		ORDER BY seq DESC LIMIT 100000 + 1) AS d
), groups AS (
	SELECT cause, topic, handler, sink, count(*) AS number, min(n) AS newest, min(at) AS first_at,
		max(at) AS last_at
	FROM rows WHERE n <= 100000
	GROUP BY cause, topic, handler, sink ORDER BY number DESC, newest LIMIT :limit
)
SELECT g.cause, e.last_error, g.topic, g.handler, r.id, g.number,
	(extract(epoch FROM g.first_at) * 1000000)::bigint,
	(extract(epoch FROM g.last_at) * 1000000)::bigint, (SELECT count(*) > 100000 FROM rows), g.sink
FROM groups AS g JOIN rows AS r ON r.n = g.newest CROSS JOIN LATERAL (
	SELECT last_error FROM {schema}postroom_inbox AS t
	WHERE t.id = r.id AND t.handler_name = r.handler OFFSET 0) AS e
ORDER BY g.number DESC, g.newest
