-- Records the highest positions that a handler has read. A lower position changes nothing.
-- Rows that a later row makes redundant for every purge are deleted.
-- doing: recording how far a source was read
-- :handler text
-- :sources text[]
-- :positions text[]
-- :period_ms bigint
WITH given AS (
	SELECT * FROM unnest(:sources, :positions) AS v(source, position)
), noted AS (
	INSERT INTO {schema}postroom_sources AS s (handler_name, source, started_at, position)
	SELECT :handler, source,
		greatest(to_timestamp(floor(extract(epoch FROM clock_timestamp()) * 1000 / :period_ms)
			* :period_ms / 1000),
			(SELECT completed_at + interval '1 microsecond' FROM {schema}postroom_inbox_purged
			WHERE handler_name = :handler)),
		position
	FROM given ORDER BY source COLLATE "C"
	ON CONFLICT (handler_name, source, started_at) DO UPDATE
	SET position = EXCLUDED.position WHERE s.position < EXCLUDED.position
)
DELETE FROM {schema}postroom_sources AS s USING given AS g
WHERE s.handler_name = :handler AND s.source = g.source AND EXISTS (
	SELECT FROM {schema}postroom_sources AS n
	JOIN {schema}postroom_inbox_purged AS p
		ON p.handler_name = n.handler_name AND n.started_at <= p.completed_at
	WHERE n.handler_name = s.handler_name AND n.source = s.source
		AND n.started_at > s.started_at AND n.position >= s.position)
