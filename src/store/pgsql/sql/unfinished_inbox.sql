-- Whether a job is active, due, or waits for its retry.
-- doing: looking for work
-- table: inbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
SELECT {unfinished}
