-- Records a step of a claimed job with its result, and its checkpoint.
-- doing: recording the progress of a job
-- :id text
-- :handler text
-- :fencing_token bigint
-- :step text
-- :step_result jsonb
-- :checkpoint jsonb
UPDATE {schema}postroom_inbox SET
	steps = CASE WHEN :step IS NULL THEN steps ELSE steps || jsonb_build_object(:step,
		jsonb_build_object('result', :step_result, 'at',
			to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) END,
	checkpoint = coalesce(:checkpoint, checkpoint), updated_at = clock_timestamp()
WHERE id = :id AND handler_name = :handler AND claims = :fencing_token AND status = 'active'
