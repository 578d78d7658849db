-- The first message of a scope in each lane, above :marks and up to :seq; above :seq if there is none.
-- Far: of the lanes of which nothing is :known, by one pass over the table.
-- doing: looking how far the outbox is empty
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :known bigint[]
-- :marks bigint[]
-- :seq bigint
SELECT ARRAY(
	SELECT coalesce((:known)[l.lane], f.seq, :seq + 1)
	FROM generate_series(1, 64) AS l(lane) LEFT JOIN (
		SELECT {lane} AS lane, min(o.seq) AS seq
		FROM {schema}postroom_outbox AS o
		WHERE {lane} = ANY (ARRAY(
				SELECT n::smallint FROM generate_series(1, 64) AS n WHERE (:known)[n] IS NULL))
			AND o.status = 'pending' AND o.state = 'ready'
			AND o.seq >= (SELECT min(mark) FROM unnest(:marks) AS mark)
			AND o.seq >= (:marks)[{lane}::int]
			AND o.seq <= :seq
			AND {scope}
		GROUP BY 1) AS f ON f.lane = l.lane
	ORDER BY l.lane)
