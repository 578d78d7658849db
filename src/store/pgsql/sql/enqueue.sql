-- Inserts a message. No row: its dedupe key exists. The second column is false if the first message
-- of the key was being deleted at that moment: the row only records the duplicate.
-- doing: enqueue
-- :id uuid
-- :namespace text
-- :topic text
-- :key text
-- :tenant_id uuid
-- :dedupe_key text
-- :correlation_id text
-- :content_type text
-- :headers jsonb
-- :payload jsonb
-- :body bytea
-- :due_offset_us bigint
INSERT INTO {schema}postroom_outbox (id, namespace, topic, key, tenant_id, dedupe_key, correlation_id,
	content_type, headers, payload, body, next_attempt_at, created_at, updated_at)
SELECT :id, :namespace, :topic, :key, :tenant_id, :dedupe_key, :correlation_id, :content_type, :headers,
	:payload, :body, now.at + :due_offset_us * interval '1 microsecond', now.at, now.at
FROM (SELECT clock_timestamp()) AS now(at)
ON CONFLICT (namespace, topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id, status = 'pending'
