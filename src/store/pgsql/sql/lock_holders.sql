-- Transactions that write messages: reads the last seq and the clock first, then the locks on the table.
-- Returns both, the holders, whether one of :before is still there, and the ids of those of :lately that
-- are: NULL if they cannot be passed, because one has no id yet or because they are more than :most.
-- A transaction is known by its virtual id, or by its own, which PREPARE TRANSACTION does not change. Its
-- own is the lowest that it has locked: those of its subtransactions are higher.
-- doing: looking who writes messages
-- :before text[]
-- :lately text[]
-- :most int
WITH locks AS MATERIALIZED (
	SELECT drawn.*, l.* FROM (
		SELECT coalesce(pg_sequence_last_value('{schema}postroom_outbox_seq_seq'), 0) AS seq,
			(extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at OFFSET 0
	) AS drawn LEFT JOIN LATERAL (
		SELECT virtualtransaction AS holder, transactionid AS id FROM pg_locks
		WHERE drawn.seq IS NOT NULL AND CASE locktype
			WHEN 'relation' THEN relation = '{schema}postroom_outbox'::regclass AND mode = 'RowExclusiveLock'
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			WHEN 'transactionid' THEN mode = 'ExclusiveLock' END
		OFFSET 0
	) AS l ON true
), ids AS MATERIALIZED (
	-- In 64 bits: the nearest to the end of the snapshot.
	SELECT holder, min(near + (id::text::bigint - near % 4294967296 + 6442450944) % 4294967296
		- 2147483648) AS id
	FROM locks CROSS JOIN (
		SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS near) AS snapshot
	WHERE id IS NOT NULL GROUP BY holder
), holders AS MATERIALIZED (
	SELECT l.holder, ids.id::text,
		l.holder = ANY (:before) OR coalesce(ids.id::text = ANY (:before), false) AS before,
		l.holder = ANY (:lately) OR coalesce(ids.id::text = ANY (:lately), false) AS lately
	FROM locks AS l LEFT JOIN ids USING (holder) WHERE l.id IS NULL AND l.holder IS NOT NULL
)
SELECT seq, at, (SELECT coalesce(array_agg(holder) || array_agg(id) FILTER (WHERE id IS NOT NULL), '{}')
	FROM holders)::text,
	EXISTS (SELECT FROM holders WHERE before),
	(SELECT CASE WHEN count(*) = count(id) AND count(*) <= :most
		THEN coalesce(array_agg(id ORDER BY id), '{}') END FROM holders WHERE lately)::text
FROM locks LIMIT 1
