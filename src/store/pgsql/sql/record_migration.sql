-- Records an applied migration.
-- doing: recording a migration
-- prepared: no
-- :version int
-- :name text
-- :applied_by text
-- :compatible_with int
INSERT INTO {schema}postroom_migrations (version, name, applied_by, compatible_with)
VALUES (:version, :name, :applied_by, :compatible_with)
