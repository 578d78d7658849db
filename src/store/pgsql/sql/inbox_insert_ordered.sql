-- Inserts events into the inbox in the order of their keys: an event that would be completed becomes
-- pending behind an unfinished event of its key, or one of this call. :dead_block: behind a dead one, too.
-- Returns the number of each new event, and how it was inserted: 0 completed, 1 pending, 2 dead.
-- doing: inserting events into the inbox
-- result: binary
-- :handler text
-- :ids text[]
-- :topics text[]
-- :keys text[]
-- :content_types text[]
-- :headers text[]
-- :payloads text[]
-- :bodies bytea[]
-- :how int[]
-- :attempts int[]
-- :delays_ms bigint[]
-- :errors text[]
-- :tenant_ids uuid[]
-- :correlation_ids text[]
-- :dead_block boolean
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), given AS MATERIALIZED (
	SELECT *, nextval('{schema}postroom_inbox_seq_seq') AS seq
	FROM unnest(:ids, :topics, :keys, :content_types, :headers, :payloads, :bodies, :how, :attempts,
		:delays_ms, :errors, :tenant_ids, :correlation_ids) WITH ORDINALITY
		AS v(id, topic, key, content_type, headers, payload, body, as_given, attempts, delay_ms,
			error, tenant_id, correlation_id, n)
), decided AS MATERIALIZED (
	SELECT *, CASE WHEN as_given = 0 AND key IS NOT NULL AND coalesce(
		(SELECT true FROM {schema}postroom_inbox AS t WHERE t.key = g.key AND t.topic = g.topic
			AND t.namespace = :handler AND t.state = 'scheduled' AND t.status IN ('pending', 'active') LIMIT 1),
		(SELECT true FROM {schema}postroom_inbox AS t WHERE t.key = g.key AND t.topic = g.topic
			AND t.namespace = :handler AND t.state = 'held' AND t.status = 'pending' LIMIT 1),
		CASE WHEN :dead_block THEN (SELECT true FROM {schema}postroom_inbox AS t WHERE t.key = g.key
			AND t.topic = g.topic AND t.namespace = :handler AND t.status = 'dead' LIMIT 1) END,
		bool_or(CASE WHEN as_given = 1 OR (as_given = 2 AND :dead_block) THEN
			(SELECT true FROM {schema}postroom_inbox AS t
			WHERE t.id = g.id AND t.handler_name = :handler LIMIT 1) IS NULL END)
			OVER (PARTITION BY topic, key ORDER BY n),
		false) THEN 1 ELSE as_given END AS how FROM given AS g
), written AS (
	INSERT INTO {schema}postroom_inbox (id, handler_name, seq, topic, key, content_type, headers,
		payload, body, status, attempts, claims, next_attempt_at, last_attempt_at, last_error,
		created_at, updated_at, processed_at, tenant_id, correlation_id)
	SELECT id, :handler, seq, topic, key, content_type, headers::jsonb, payload::jsonb, body,
		(ARRAY['completed', 'pending', 'dead'])[how + 1], attempts, attempts,
		at + delay_ms * interval '1 millisecond', CASE WHEN attempts > 0 THEN at END, error,
		at, at, CASE how WHEN 0 THEN at END, tenant_id, correlation_id
	FROM decided CROSS JOIN now ORDER BY id COLLATE "C", seq
	ON CONFLICT (id, handler_name) DO NOTHING RETURNING seq
)
SELECT n, how FROM written JOIN decided USING (seq)
