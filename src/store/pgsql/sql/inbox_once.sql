-- Inserts a completed event; no row if it is a duplicate. The function keeps its plan for the session,
-- which a statement on the application's connection may not.
-- doing: inbox once
-- :id text
-- :handler text
SELECT true WHERE {schema}postroom_inbox_once(:id, :handler)
