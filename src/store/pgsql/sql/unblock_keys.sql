-- Unblocks rows that are held behind finished rows of these keys.
-- doing: unblocking keys
-- result: binary
-- table: outbox inbox
-- :keys text[]
-- :topics text[]
-- :namespaces text[]
WITH keys AS MATERIALIZED (
	SELECT DISTINCT key, topic, namespace
	FROM unnest(:keys, :topics, :namespaces) AS k(key, topic, namespace)
	WHERE EXISTS (SELECT FROM {schema}{table} WHERE status = 'pending' AND state = 'held')
)
{unblock}))
