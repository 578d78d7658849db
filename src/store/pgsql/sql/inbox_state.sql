-- The state of an event or command.
-- doing: inbox submit
-- :id text
-- :handler text
SELECT status FROM {schema}postroom_inbox WHERE id = :id AND handler_name = :handler
