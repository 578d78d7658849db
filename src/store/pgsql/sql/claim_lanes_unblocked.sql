-- The same as claim_lanes without the parts that hold and delay messages. Claims nothing if there is any
-- blocker, and leaves early messages alone.
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
), {any_blocker}, {lanes_to_read}, heads AS MATERIALIZED (
	SELECT l.lane, epoch, CASE WHEN epoch = (:resume_epochs)[l.lane] THEN (:resume_seqs)[l.lane] ELSE (
		SELECT seq FROM {schema}postroom_outbox AS o
		WHERE {lane} = l.lane
			AND o.status = 'pending' AND o.state = 'ready'
			AND o.seq >= greatest(l.start_seq, (:scope_low_water_seqs)[l.lane])
			AND {scope}
		ORDER BY o.seq LIMIT 1) END AS head
	FROM lanes AS l
	WHERE lease = 'lane' AND locked_by IS NULL AND NOT (SELECT present FROM any_blocker)
), {lock_lanes}, {candidates}, total AS MATERIALIZED (
	SELECT sum(bytes) AS bytes FROM candidates
), fitting AS NOT MATERIALIZED (
	SELECT * FROM candidates WHERE NOT early AND {fits}
), {lease_lanes}
