-- compatible-with: 3
-- For tests: a migration that excludes all older programs.
ALTER TABLE postroom_outbox ADD COLUMN exclusive TEXT;
