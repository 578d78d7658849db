-- Claims all ready messages of the lanes that have any, for a short backlog: from the low-water marks of
-- the last full scan, then only the rows of these lanes. A lane whose mark is lower by now is left out.
-- Claims nothing if there is any blocker, more messages than fit, or one of the :passed transactions has
-- ended, which the last column reports.
-- A lane is locked in the version that was found, and only leased messages are claimed.
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
-- :max_bytes bigint
-- :dead_block boolean
-- :low_water_seqs bigint[]
-- :passed text[]
-- :lowest_seq bigint
-- :lanes smallint[]
-- :scope_low_water_seqs bigint[]
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), {any_blocker}, found AS MATERIALIZED (
	SELECT lane, count(*) AS number,
		sum(CASE WHEN {is_large} THEN :max_bytes + 1 ELSE bytes END) AS bytes,
		array_agg(seq) FILTER (WHERE NOT early) AS seqs,
		array_agg(row_ctid) FILTER (WHERE NOT early) AS row_ctids
	FROM (
		SELECT {lane}::smallint AS lane, seq, ctid AS row_ctid,
			next_attempt_at > (SELECT at FROM now) OR attempts >= :max_attempts AS early,
			{printed_bytes} AS bytes
		FROM {schema}postroom_outbox AS o
		WHERE {lane} = ANY (:lanes)
			AND o.status = 'pending' AND o.state = 'ready' AND o.seq >= :lowest_seq
			AND o.seq >= greatest((:low_water_seqs)[{lane}::smallint],
				(:scope_low_water_seqs)[{lane}::smallint])
			AND {scope}
		LIMIT :limit::bigint + 1) AS o
	GROUP BY lane
), surplus AS MATERIALIZED (
	SELECT coalesce(sum(number) > :limit, false)
		OR NOT coalesce(:passed::xid8[] <@ {open_transactions}, true) AS too_much
	FROM found
), heads AS MATERIALIZED (
	SELECT p.*, l.epoch, l.lane_ctid FROM found AS p CROSS JOIN LATERAL (
		SELECT *, ctid AS lane_ctid FROM {schema}postroom_lanes AS l
		WHERE l.lane = p.lane ORDER BY l.epoch DESC LIMIT 1) AS l
	WHERE l.low_water_seq >= (:low_water_seqs)[p.lane] AND lease = 'lane' AND locked_by IS NULL
		AND NOT (SELECT too_much FROM surplus)
		AND NOT (SELECT present FROM any_blocker)
), locked AS MATERIALIZED (
	SELECT s.lane, number, bytes, seqs, row_ctids, lane_ctid, l.epoch + 1 AS epoch
	FROM heads AS s JOIN {schema}postroom_lanes AS l ON l.ctid = s.lane_ctid AND l.epoch = s.epoch
	WHERE l.locked_by IS NULL FOR UPDATE OF l SKIP LOCKED
), candidates AS MATERIALIZED (
	SELECT coalesce(sum(number), 0)::bigint AS number, coalesce(sum(bytes) > :max_bytes, false)
		OR (SELECT too_much FROM surplus) AS too_much
	FROM locked
), leased AS (
	UPDATE {schema}postroom_lanes AS l SET locked_by = :worker,
		locked_until = (SELECT at FROM now) + :lease_ms * interval '1 millisecond',
		epoch = f.epoch, in_flight = f.seqs
	FROM (SELECT * FROM locked
		WHERE seqs IS NOT NULL AND NOT (SELECT too_much FROM candidates)) AS f
	WHERE l.ctid = f.lane_ctid AND l.epoch = f.epoch - 1
	RETURNING f.lane, f.epoch, f.row_ctids
), claimed AS NOT MATERIALIZED (
	SELECT {columns}, headers, payload, body, 0::bigint AS withheld, NULL::boolean AS dead_lettered,
		lane::int AS of_lane, epoch AS of_epoch, next_attempt_at AS due, row_ctid
	FROM (SELECT lane, epoch, unnest(row_ctids) AS row_ctid FROM leased) AS m
	JOIN {schema}postroom_outbox AS t ON t.ctid = row_ctid
)
SELECT c.*, n.* FROM (
	SELECT number, pg_current_snapshot()::text AS snapshot, NULL::text AS low_water_seqs,
		NULL::text AS passed, false AS passed_ended, {any_due} AS due, NULL::boolean AS expired,
		(SELECT present FROM any_blocker) OR too_much AS any_blocker
	FROM candidates) AS n LEFT JOIN claimed AS c ON false
UNION ALL
SELECT *, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM claimed
