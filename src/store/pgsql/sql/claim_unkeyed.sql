-- Claims ready messages without a key, with row leases, from the resume position on. Claims none while
-- lanes are leased, and none of a lane that still is.
-- doing: claiming messages
-- result: binary
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :limit int
-- :max_attempts int
-- :worker uuid
-- :lease_ms bigint
-- :dead_error text
-- :resume_us bigint
-- :resume_seq bigint
-- :max_bytes bigint
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), chosen AS MATERIALIZED (
	SELECT ctid AS row_ctid, seq, next_attempt_at AS due,
		{printed_bytes} AS bytes
	FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state = 'ready' AND key IS NULL
		AND next_attempt_at <= (SELECT at FROM now)
		AND (next_attempt_at, seq) >
			(timestamptz 'epoch' + :resume_us * interval '1 microsecond', :resume_seq)
		AND {row_leases}
		AND {lane} <> ALL (
			ARRAY(SELECT lane FROM {schema}postroom_lanes WHERE locked_by IS NOT NULL))
		AND {scope}
	ORDER BY next_attempt_at, seq LIMIT :limit FOR UPDATE SKIP LOCKED
), fitting AS MATERIALIZED (
	SELECT * FROM (
		SELECT *, sum(bytes) OVER (ORDER BY due, seq ROWS UNBOUNDED PRECEDING) AS total
		FROM (SELECT * FROM chosen) AS free) AS summed
	WHERE total <= :max_bytes OR total = bytes
)
UPDATE {schema}postroom_outbox AS m
SET status = CASE WHEN attempts < :max_attempts THEN 'processing' ELSE 'dead' END,
	{set_lease}
WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM fitting))
RETURNING {columns},
	{claimed_content},
	0 AS of_lane, 0::bigint AS of_epoch, next_attempt_at AS due, NULL::tid AS row_ctid, 0::bigint
