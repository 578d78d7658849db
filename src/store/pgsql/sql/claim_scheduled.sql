-- Claims scheduled messages that are due. A delayed message that is due joins the order of its key, at its
-- end: those of one key in the order of their due times, and none before one that another worker has
-- locked. A row that is locked in a version newer than the snapshot cannot be written, so it is skipped.
-- The last column is the number of due messages that were found, claimed or not.
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
-- :max_bytes bigint
-- :dead_block boolean
-- :unordered boolean
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), chosen AS MATERIALIZED (
	SELECT ctid AS row_ctid FROM {schema}{table}
	WHERE status = 'pending' AND state IN ('scheduled', 'delayed')
		AND next_attempt_at <= (SELECT at FROM now)
		AND {scope}
	ORDER BY next_attempt_at, seq LIMIT :limit FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
	SELECT ctid AS row_ctid, seq, key, topic, namespace, state, next_attempt_at AS due,
		{printed_bytes} AS bytes
	FROM {schema}{table} WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM chosen))
), delayed AS MATERIALIZED (
	SELECT ctid AS row_ctid, key, topic, namespace, seq, next_attempt_at AS due,
		ctid IN (SELECT row_ctid FROM found) AS locked
	FROM {schema}{table}
	WHERE status = 'pending' AND state = 'delayed' AND (next_attempt_at, seq) <=
		(SELECT due, seq FROM found WHERE state = 'delayed' ORDER BY due DESC, seq DESC LIMIT 1)
		AND {scope}
), numbered AS MATERIALIZED (
	SELECT row_ctid, nextval('{schema}{table}_seq_seq') AS seq FROM (
		SELECT row_ctid FROM (
			SELECT *, bool_and(locked) OVER (PARTITION BY key, topic, namespace ORDER BY due, seq) AS ready
			FROM delayed) AS d
		WHERE ready ORDER BY due, seq) AS r
), joined AS (
	UPDATE {schema}{table} AS t SET state = 'ready', seq = n.seq
	FROM numbered AS n WHERE t.ctid = n.row_ctid
), keys AS MATERIALIZED (
	SELECT key, topic, namespace, array_agg(seq) AS own_seqs FROM found
	WHERE state = 'scheduled' AND key IS NOT NULL AND NOT :unordered
	GROUP BY 1, 2, 3
), candidates AS MATERIALIZED (
	SELECT * FROM found WHERE state = 'scheduled'
), {find_and_hold}, fitting AS MATERIALIZED (
	SELECT * FROM (
		SELECT *, sum(bytes) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total FROM (
			SELECT * FROM candidates LEFT JOIN (
				SELECT key, topic, namespace, seq AS blocker_seq FROM blockers) AS b
				USING (key, topic, namespace)
			WHERE (blocker_seq IS NULL OR seq < blocker_seq)) AS free) AS summed
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
SELECT c.*, n.number FROM (SELECT count(*) AS number FROM chosen) AS n LEFT JOIN claimed AS c ON true
