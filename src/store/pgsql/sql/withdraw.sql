-- Deletes pending messages as if they had never been written, with their dedupe keys. Under row leases
-- only: a message in flight of a lane looks like a waiting one. The ids of the messages are returned.
-- doing: withdrawing messages
-- :ids uuid[]
WITH removed AS (
	DELETE FROM {schema}postroom_outbox AS o WHERE o.id = ANY (:ids) AND o.status = 'pending'
	RETURNING o.id, o.namespace, o.topic, o.dedupe_key
), forgotten AS (
	DELETE FROM {schema}postroom_dedupe AS d USING removed AS r
	WHERE d.namespace = r.namespace AND d.topic = r.topic AND d.dedupe_key = r.dedupe_key AND d.id = r.id
)
SELECT coalesce(array_agg(r.id), '{}')::text, count(*) FROM removed AS r
