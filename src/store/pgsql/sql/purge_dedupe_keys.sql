-- Purges dedupe keys older than an age whose messages were deleted. Age 0 includes keys with a future
-- timestamp. :exclusive: do nothing if another process is already purging.
-- doing: purging dedupe keys
-- :exclusive boolean
-- :older_than_ms bigint
-- :limit int
WITH lock AS MATERIALIZED (
	SELECT CASE WHEN :exclusive THEN pg_try_advisory_xact_lock(1886351221) ELSE true END AS granted
), old AS MATERIALIZED (
	SELECT ctid FROM {schema}postroom_dedupe AS t
	WHERE (SELECT granted FROM lock)
		AND (SELECT true FROM {schema}postroom_outbox AS o WHERE o.namespace = t.namespace
			AND o.topic = t.topic AND o.dedupe_key = t.dedupe_key LIMIT 1) IS NULL
		AND created_at <= (SELECT CASE WHEN :older_than_ms > 0
			THEN clock_timestamp() - :older_than_ms * interval '1 millisecond' ELSE 'infinity' END)
	ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}postroom_dedupe WHERE ctid = ANY (ARRAY(SELECT ctid FROM old))
