-- The first message of a dedupe key, and whether this role may compare payloads with it.
-- doing: enqueue
-- :namespace text
-- :topic text
-- :dedupe_key text
SELECT id, has_column_privilege('{schema}postroom_outbox', 'payload', 'SELECT')
FROM {schema}postroom_dedupe
WHERE namespace = :namespace AND topic = :topic AND dedupe_key = :dedupe_key
