-- The same as find_duplicate for arrays. ANY (ARRAY[…]) makes the plan one index lookup for each.
-- doing: enqueue
-- :namespaces text[]
-- :topics text[]
-- :dedupe_keys text[]
SELECT m.n, t.id, has_column_privilege('{schema}postroom_outbox', 'payload', 'SELECT')
FROM unnest(:namespaces, :topics, :dedupe_keys) WITH ORDINALITY AS m(namespace, topic, dedupe_key, n)
JOIN {schema}postroom_dedupe AS t ON t.namespace = ANY (ARRAY[m.namespace])
	AND t.topic = ANY (ARRAY[m.topic]) AND t.dedupe_key = ANY (ARRAY[m.dedupe_key])
ORDER BY m.n
