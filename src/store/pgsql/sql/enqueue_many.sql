-- Inserts messages in the order of the arrays. Returns those that are not duplicates: see enqueue.
-- doing: enqueue
-- :ids uuid[]
-- :namespaces text[]
-- :topics text[]
-- :keys text[]
-- :tenant_ids uuid[]
-- :dedupe_keys text[]
-- :correlation_ids text[]
-- :content_types text[]
-- :headers text[]
-- :payloads text[]
-- :bodies bytea[]
-- :due_offsets_us bigint[]
-- :seqs bigint[]
INSERT INTO {schema}postroom_outbox (seq, id, namespace, topic, key, tenant_id, dedupe_key,
	correlation_id, content_type, headers, payload, body, next_attempt_at, created_at, updated_at)
SELECT m.seq, m.id, m.namespace, m.topic, m.key, m.tenant_id, m.dedupe_key, m.correlation_id,
	m.content_type, m.headers::jsonb, m.payload::jsonb, m.body,
	now.at + m.due_offset_us * interval '1 microsecond', now.at, now.at
FROM (SELECT clock_timestamp()) AS now(at), unnest(:ids, :namespaces, :topics, :keys, :tenant_ids,
	:dedupe_keys, :correlation_ids, :content_types, :headers, :payloads, :bodies, :due_offsets_us,
	:seqs) WITH ORDINALITY AS m(id, namespace, topic, key, tenant_id, dedupe_key, correlation_id,
		content_type, headers, payload, body, due_offset_us, seq, n)
ORDER BY m.n
ON CONFLICT (namespace, topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id, status = 'pending'
