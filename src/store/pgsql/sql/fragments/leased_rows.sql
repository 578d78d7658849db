-- The rows that this worker still has, or any worker for NULL; returns their ordinals. Each is looked up in
-- the unique index, whatever the statistics say: nothing here can be hashed or merged, and no condition is
-- on the table alone, or a planner that expects few rows compares each message with all of them.
WHERE t.{row} = ANY (ARRAY[v.row]) AND CASE WHEN t.claims = v.claims
	THEN t.status = '{active}' AND t.locked_by = coalesce(:worker, t.locked_by) END
RETURNING v.n
