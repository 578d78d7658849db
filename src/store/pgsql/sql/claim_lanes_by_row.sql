-- Claims ready messages with a key from lanes, with row leases. The claim locks the rows of the lanes, and
-- raises their epochs. See fragments/lease_lanes.sql for the first row of the result.
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
-- :resume_seqs bigint[]
-- :resume_epochs bigint[]
-- :max_bytes bigint
-- :dead_block boolean
-- :heads_snapshot text
-- :lanes smallint[]
-- :lane_quota int
-- :lanes_wanted int
-- :scope_low_water_seqs bigint[]
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), {lanes_to_read}, heads AS MATERIALIZED (
	SELECT l.lane, epoch, CASE WHEN epoch = (:resume_epochs)[l.lane] THEN (:resume_seqs)[l.lane] ELSE (
		SELECT seq FROM {schema}postroom_outbox AS o
		WHERE {lane} = l.lane
			AND o.status = 'pending' AND o.state = 'ready' AND o.key IS NOT NULL
			AND o.seq >= greatest(l.start_seq, (:scope_low_water_seqs)[l.lane])
			AND {scope}
		ORDER BY o.seq LIMIT 1) END AS head
	FROM lanes AS l WHERE lease = 'row' AND locked_by IS NULL
), {lock_lanes}, candidates AS MATERIALIZED (
	SELECT locked.epoch, o.* FROM locked CROSS JOIN LATERAL (
		SELECT locked.lane, ctid AS row_ctid, next_attempt_at,
			next_attempt_at > (SELECT at FROM now) OR attempts >= :max_attempts AS early,
			{printed_bytes} AS bytes, seq, key, topic, namespace
		FROM {schema}postroom_outbox AS o
		WHERE {lane} = locked.lane
			AND o.status = 'pending' AND o.state = 'ready' AND o.key IS NOT NULL
			AND o.seq >= locked.head AND (key IS NULL OR {visible_at_heads})
			AND {scope}
		ORDER BY o.seq LIMIT :lane_quota) AS o
	LIMIT :limit
), keys AS MATERIALIZED (
	SELECT DISTINCT key, topic, namespace, NULL::bigint[] AS own_seqs FROM candidates WHERE key IS NOT NULL
), {find_and_hold}, {delay_early}, lanes_claimed AS (
	UPDATE {schema}postroom_lanes AS l SET epoch = f.epoch
	FROM (SELECT DISTINCT lane, epoch FROM fitting) AS f
	WHERE l.lane = f.lane AND l.epoch = f.epoch - 1
), epochs AS MATERIALIZED (
	SELECT ARRAY(SELECT locked.epoch FROM generate_series(1, 64) AS n
		LEFT JOIN locked ON locked.lane = n ORDER BY n) AS each
), claimed AS (
	UPDATE {schema}postroom_outbox AS m
	SET status = CASE WHEN attempts < :max_attempts THEN 'processing' ELSE 'dead' END,
		{set_lease}
	WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM fitting))
	RETURNING {columns},
		{claimed_content},
		{lane}::int AS of_lane,
		((SELECT each FROM epochs))[{lane}::int] AS of_epoch,
		next_attempt_at AS due, ctid AS row_ctid
)
SELECT c.*, n.* FROM (
	SELECT count(*) AS number, pg_current_snapshot()::text AS snapshot, NULL::text AS low_water_seqs,
		NULL::text AS passed, false AS passed_ended, true AS due, true AS expired, false AS any_blocker
	FROM candidates) AS n LEFT JOIN claimed AS c ON false
UNION ALL
SELECT *, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM claimed
