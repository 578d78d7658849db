-- The migrations that a newer program has applied.
-- doing: reading postroom_migrations
-- prepared: no
-- :newest_known int
SELECT version, compatible_with, name, (extract(epoch FROM applied_at) * 1000000)::bigint, applied_by
FROM {schema}postroom_migrations WHERE version > :newest_known ORDER BY version
