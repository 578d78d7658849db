-- Finds a schema by its name; NULL: it does not exist.
-- doing: creating the schema
-- prepared: no
-- :name text
SELECT to_regnamespace(:name)
