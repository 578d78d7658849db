-- compatible-with: 5
-- For tests: a migration that excludes all older programs.
ALTER TABLE {schema}postroom_outbox ADD COLUMN exclusive text;
