-- Whether the content of a message differs.
-- doing: enqueue
-- :id uuid
-- :payload jsonb
-- :body bytea
SELECT payload IS DISTINCT FROM :payload OR body IS DISTINCT FROM :body
FROM {schema}postroom_outbox WHERE id = :id
