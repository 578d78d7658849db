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
		SELECT ((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1) AS lane, min(o.seq) AS seq
		FROM {schema}postroom_outbox AS o
		WHERE ((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1) = ANY (ARRAY(
				SELECT n::smallint FROM generate_series(1, 64) AS n WHERE (:known)[n] IS NULL))
			AND o.status = 'pending' AND o.apart = 0 AND o.key IS NOT NULL
			AND o.seq >= (SELECT min(mark) FROM unnest(:marks) AS mark)
			AND o.seq >= (:marks)[((CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1)::int]
			AND o.seq <= :seq
			AND (:namespace IS NULL OR namespace = :namespace) AND (:topic IS NULL OR topic LIKE :topic)
				AND (:tenant_id IS NULL OR tenant_id = :tenant_id) {rules}
		GROUP BY 1) AS f ON f.lane = l.lane
	ORDER BY l.lane)
