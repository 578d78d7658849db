-- A page of the inbox with a filter by id: found by the id, not by a scan in the order of seq.
-- doing: reading the inbox
-- :brief boolean
-- :after text
-- :limit int
-- :offset bigint
SELECT seq, id, status, coalesce(topic, handler_name), tenant_id, key, correlation_id,
	CASE WHEN :brief THEN NULL ELSE payload::text END, CASE WHEN :brief THEN NULL ELSE body END,
	content_type, CASE WHEN :brief THEN '{}' ELSE headers::text END, attempts, claims,
	(extract(epoch FROM next_attempt_at) * 1000000)::bigint,
	locked_by, (extract(epoch FROM locked_until) * 1000000)::bigint,
	(extract(epoch FROM last_attempt_at) * 1000000)::bigint, last_error,
	(extract(epoch FROM created_at) * 1000000)::bigint,
	(extract(epoch FROM updated_at) * 1000000)::bigint, handler_name,
	CASE WHEN status = 'completed'
		THEN (extract(epoch FROM coalesce(processed_at, updated_at)) * 1000000)::bigint END,
	CASE WHEN :brief THEN NULL ELSE checkpoint::text END,
	CASE WHEN :brief THEN '{}' ELSE steps::text END
FROM {schema}postroom_inbox
WHERE seq < coalesce(:after::bigint, 9223372036854775807){filter}
ORDER BY seq + 0 DESC LIMIT :limit OFFSET :offset
