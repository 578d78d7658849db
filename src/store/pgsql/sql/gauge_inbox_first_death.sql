-- Since when there are dead rows in the inbox. The index has no times, so the rows are read.
-- doing: collecting figures
-- :cap bigint
SELECT (extract(epoch FROM min(updated_at)) * 1000000)::bigint FROM (
	SELECT updated_at FROM {schema}postroom_inbox WHERE status = 'dead' ORDER BY seq LIMIT :cap) AS d
