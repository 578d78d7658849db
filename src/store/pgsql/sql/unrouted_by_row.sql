-- Counts pending messages that no route matches, up to :limit, and returns namespace and topic of one.
-- With row leases: each part is read from its own index.
-- doing: counting messages without a route
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :limit int
SELECT count(*), (array_agg(namespace))[1], (array_agg(topic))[1] FROM (
	SELECT namespace, topic FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state = 'ready' AND key IS NULL AND {unrouted}
	UNION ALL
	SELECT namespace, topic FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state = 'ready' AND key IS NOT NULL AND {unrouted}
	UNION ALL
	SELECT namespace, topic FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state IN ('scheduled', 'delayed') AND {unrouted}
	UNION ALL
	SELECT namespace, topic FROM {schema}postroom_outbox
	WHERE status = 'pending' AND state = 'held' AND {unrouted}
	LIMIT :limit) AS u
