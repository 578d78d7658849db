-- Claims messages with an expired lease and at least :min_attempts: the earliest one of each key, because
-- the others wait for it. Messages behind a dead letter that blocks are held, all of them: an expired
-- lease would count as unfinished work without end.
-- doing: claiming messages
-- result: binary
-- table: outbox inbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :limit int
-- :max_attempts int
-- :worker uuid
-- :lease_ms bigint
-- :dead_error text
-- :min_attempts bigint
-- :max_bytes bigint
-- :dead_block boolean
-- :unordered boolean
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), blocked AS MATERIALIZED (
	SELECT ctid AS row_ctid FROM {schema}{table} AS t
	WHERE status = '{active}' AND locked_until < (SELECT at FROM now) AND attempts >= :min_attempts
		AND {scope}
		AND :dead_block AND key IS NOT NULL AND EXISTS (
			SELECT FROM {schema}{table} AS b
			WHERE b.key = t.key AND b.topic = t.topic AND b.namespace = t.namespace
				AND b.seq < t.seq AND b.status = 'dead')
	ORDER BY locked_until LIMIT 500 FOR UPDATE SKIP LOCKED
), held AS (
	UPDATE {schema}{table} SET status = 'pending', state = 'held',
		locked_by = NULL, locked_until = NULL, updated_at = (SELECT at FROM now)
	WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM blocked))
), chosen AS MATERIALIZED (
	SELECT ctid AS row_ctid, seq, CASE WHEN attempts < :max_attempts THEN
		{printed_bytes} ELSE 0 END AS bytes
	FROM {schema}{table} AS t
	WHERE status = '{active}' AND locked_until < (SELECT at FROM now) AND attempts >= :min_attempts
		AND {scope}
		AND (key IS NULL OR :unordered OR (NOT EXISTS (
			SELECT FROM {schema}{table} AS b
			WHERE b.key = t.key AND b.topic = t.topic AND b.namespace = t.namespace
				AND b.seq < t.seq AND b.state = 'scheduled' AND b.status IN ('pending', '{active}'))
		AND NOT EXISTS (
			SELECT FROM {schema}{table} AS b
			WHERE b.key = t.key AND b.topic = t.topic AND b.namespace = t.namespace
				AND b.seq < t.seq AND b.state = 'held' AND b.status = 'pending')))
		AND NOT (:dead_block AND key IS NOT NULL AND EXISTS (
			SELECT FROM {schema}{table} AS b
			WHERE b.key = t.key AND b.topic = t.topic AND b.namespace = t.namespace
				AND b.seq < t.seq AND b.status = 'dead'))
	ORDER BY locked_until, seq LIMIT :limit FOR UPDATE SKIP LOCKED
), fitting AS MATERIALIZED (
	SELECT * FROM (
		SELECT *, sum(bytes) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total
		FROM (SELECT * FROM chosen) AS free) AS summed
	WHERE total <= :max_bytes OR total = bytes
), claimed AS (
	UPDATE {schema}{table} AS m
	SET status = CASE WHEN attempts < :max_attempts THEN '{active}' ELSE 'dead' END,
		{set_lease}
	WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM fitting))
	RETURNING {columns},
		{claimed_content},
		0 AS of_lane, 0::bigint AS of_epoch, next_attempt_at AS due, NULL::tid AS row_ctid
)
SELECT c.*, 0::bigint FROM claimed AS c
