-- When the oldest ready message without a key became due.
-- doing: collecting figures
SELECT (extract(epoch FROM greatest(created_at, next_attempt_at)) * 1000000)::bigint
FROM {schema}postroom_outbox WHERE key IS NULL AND state = 'ready' AND status = 'pending'
ORDER BY next_attempt_at, seq LIMIT 1
