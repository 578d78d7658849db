-- Finds a table by its name; NULL: it does not exist.
-- doing: reading postroom_migrations
-- prepared: no
-- :name text
SELECT to_regclass(:name)
