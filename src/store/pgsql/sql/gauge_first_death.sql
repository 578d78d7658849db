-- Since when there are dead rows in the outbox. The index has no times, so the rows are read.
-- doing: collecting figures
-- :cap bigint
SELECT (extract(epoch FROM min(updated_at)) * 1000000)::bigint FROM (
	SELECT updated_at FROM {schema}postroom_outbox WHERE status = 'dead' ORDER BY id LIMIT :cap) AS d
