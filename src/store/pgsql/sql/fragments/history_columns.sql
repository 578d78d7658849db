id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body, content_type, headers,
attempts, claims, next_attempt_at, last_attempt_at, created_at, delivered_at
