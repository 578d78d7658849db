-- Parts of a WITH. keys(key, topic, namespace, own_seqs) become blockers: the first unfinished message of
-- each key that is not in own_seqs. The candidates(row_ctid, seq, key, ...) behind one are held, under a
-- share lock on the blocker: the worker that finishes it waits, sees them, and unblocks them. A blocker
-- that began a moment ago is nearly finished, and holds none. Usually no message is held: that is checked
-- once, and spares one lookup per key.
blockers AS MATERIALIZED (
	SELECT k.key, k.topic, k.namespace, b.seq, b.row_ctid, b.status = '{active}'
		AND b.last_attempt_at > (SELECT at FROM now) - interval '100 milliseconds' AS nearly_finished
	FROM keys AS k CROSS JOIN LATERAL (
		SELECT * FROM (
			(SELECT ctid AS row_ctid, seq, status, last_attempt_at FROM {schema}{table}
			WHERE key = k.key AND topic = k.topic AND namespace = k.namespace
				AND state = 'scheduled' AND status IN ('pending', '{active}')
			ORDER BY seq LIMIT coalesce(cardinality(k.own_seqs), 0) + 1)
			UNION ALL
			(SELECT ctid, seq, status, last_attempt_at FROM {schema}{table}
			WHERE EXISTS (SELECT FROM {schema}{table} WHERE status = 'pending' AND state = 'held')
				AND key = k.key AND topic = k.topic AND namespace = k.namespace
				AND state = 'held' AND status = 'pending'
			ORDER BY seq LIMIT 1)
			UNION ALL
			(SELECT ctid, seq, status, last_attempt_at FROM {schema}{table}
			WHERE :dead_block AND key = k.key AND topic = k.topic AND namespace = k.namespace
				AND status = 'dead'
			ORDER BY seq LIMIT 1)) AS a
		WHERE k.own_seqs IS NULL OR seq <> ALL (k.own_seqs)
		ORDER BY seq LIMIT 1) AS b
), held AS (
	UPDATE {schema}{table} SET state = 'held' WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {schema}{table} WHERE ctid = ANY (ARRAY(
			SELECT candidates.row_ctid
			FROM candidates JOIN blockers AS b USING (key, topic, namespace)
			WHERE candidates.seq > b.seq AND NOT b.nearly_finished AND b.row_ctid = ANY (ARRAY(
				SELECT ctid FROM {schema}{table}
				WHERE ctid = ANY (ARRAY(SELECT row_ctid FROM blockers WHERE NOT nearly_finished))
				FOR SHARE SKIP LOCKED))))
		FOR UPDATE SKIP LOCKED))
)
