-- The numbers of those messages whose content differs.
-- doing: enqueue
-- :ids uuid[]
-- :payloads text[]
-- :bodies bytea[]
SELECT m.n FROM unnest(:ids, :payloads, :bodies) WITH ORDINALITY AS m(id, payload, body, n)
JOIN {schema}postroom_outbox AS t ON t.id = ANY (ARRAY[m.id])
WHERE t.payload <> m.payload::jsonb OR t.body IS DISTINCT FROM m.body
