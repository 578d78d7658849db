-- When and by which program a migration was applied.
-- doing: reading postroom_migrations
-- prepared: no
-- :version int
SELECT (extract(epoch FROM applied_at) * 1000000)::bigint, applied_by
FROM {schema}postroom_migrations WHERE version = :version
