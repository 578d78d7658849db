-- The newest migration, and the one that excludes the most programs with the program that applied it.
-- doing: reading postroom_migrations
-- prepared: no
SELECT (SELECT max(version) FROM {schema}postroom_migrations), compatible_with, applied_by
FROM {schema}postroom_migrations ORDER BY compatible_with DESC, version LIMIT 1
