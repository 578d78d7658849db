-- Unblocks the held rows of keys, up to the first blocker that is left, and at most a batch of each key.
UPDATE {schema}{table} SET state = 'scheduled' WHERE ctid = ANY (ARRAY(
	SELECT h.row_ctid FROM keys AS k CROSS JOIN LATERAL (
		SELECT ctid AS row_ctid FROM {schema}{table}
		WHERE key = k.key AND topic = k.topic AND namespace = k.namespace
			AND status = 'pending' AND state = 'held'
			AND seq < coalesce((SELECT seq FROM {schema}{table}
				WHERE key = k.key AND topic = k.topic AND namespace = k.namespace
					AND state = 'scheduled' AND status IN ('pending', '{active}')
				ORDER BY seq LIMIT 1), 9223372036854775807)
		ORDER BY seq LIMIT 500) AS h WHERE true
