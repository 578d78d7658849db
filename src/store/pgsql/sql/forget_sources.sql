-- Deletes the positions of a handler.
-- doing: forgetting how far sources were read
-- :handler text
DELETE FROM {schema}postroom_sources WHERE handler_name = :handler
