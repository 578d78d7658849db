-- Parts of a WITH: candidates that must not be claimed now are delayed until they are due, unless they are
-- behind a blocker. That raises the epoch of their lane, because in other scopes they may be due.
delayed AS (
	UPDATE {schema}postroom_outbox SET state = CASE WHEN key IS NULL OR attempts > 0
		THEN 'scheduled'::{schema}postroom_state ELSE 'delayed' END
	WHERE ctid = ANY (ARRAY(
		SELECT row_ctid FROM candidates AS m WHERE early AND NOT EXISTS (
			SELECT FROM blockers AS b WHERE b.key = m.key AND b.topic = m.topic
				AND b.namespace = m.namespace AND b.seq < m.seq)))
	RETURNING {lane} AS lane
), total AS MATERIALIZED (
	SELECT sum(bytes) AS bytes FROM candidates
), fitting AS MATERIALIZED (
	SELECT * FROM candidates LEFT JOIN (
		SELECT key, topic, namespace, seq AS blocker_seq FROM blockers) AS b
		USING (key, topic, namespace)
	WHERE (blocker_seq IS NULL OR seq < blocker_seq) AND NOT early AND {fits}
), epochs_raised AS (
	UPDATE {schema}postroom_lanes AS l SET epoch = m.epoch FROM locked AS m
	WHERE l.lane = m.lane AND l.epoch = m.epoch - 1
		AND m.lane IN (SELECT lane FROM delayed) AND m.lane NOT IN (SELECT lane FROM fitting)
)
