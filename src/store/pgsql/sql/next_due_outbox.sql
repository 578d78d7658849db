-- For connections behind a pooler, which cannot be notified. See fragments/next_due.sql for the columns.
-- doing: looking for work
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :scope_low_water_us bigint
-- :scope_low_water_seqs bigint[]
SELECT {next_due}
