-- Inserts a command; no row if it is a duplicate.
-- doing: inbox submit
-- :id text
-- :handler text
-- :payload jsonb
-- :tenant_id uuid
-- :correlation_id text
INSERT INTO {schema}postroom_inbox (id, handler_name, payload, next_attempt_at, created_at, updated_at,
	tenant_id, correlation_id)
SELECT :id, :handler, :payload, now.at, now.at, now.at, :tenant_id, :correlation_id
FROM (SELECT clock_timestamp()) AS now(at)
ON CONFLICT (id, handler_name) DO NOTHING RETURNING id
