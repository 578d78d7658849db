-- compatible-with: 1
-- For tests: a migration after which older programs keep working.
ALTER TABLE {schema}postroom_outbox ADD COLUMN later text;
ALTER TABLE {schema}postroom_inbox ADD COLUMN later text;
ALTER TABLE {schema}postroom_lanes ADD COLUMN later text;
ALTER TABLE {schema}postroom_history ADD COLUMN later text;
CREATE INDEX postroom_outbox_later ON {schema}postroom_outbox (later) WHERE later IS NOT NULL;
