-- The columns of postroom_history, of a message that was in flight in a lane.
t.seq, id, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body, content_type,
headers, attempts + 1 AS attempts, claims + 1 AS claims, next_attempt_at,
(SELECT at FROM now) AS last_attempt_at, created_at, (SELECT at FROM now) AS delivered_at
