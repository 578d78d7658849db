-- compatible-with: 1
-- For tests: a migration after which older programs keep working.
ALTER TABLE postroom_outbox ADD COLUMN later TEXT;
ALTER TABLE postroom_inbox ADD COLUMN later TEXT;
CREATE INDEX postroom_outbox_later ON postroom_outbox (later) WHERE later IS NOT NULL;
