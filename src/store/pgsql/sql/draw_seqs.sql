-- Draws seq numbers. A transaction must hold a lock on the table before it draws a seq: the INSERT,
-- which writes no row, takes it.
-- doing: enqueue
-- :count bigint
WITH locked AS (
	INSERT INTO {schema}postroom_outbox (topic, payload) SELECT 'x', 'null' WHERE false
)
SELECT nextval('{schema}postroom_outbox_seq_seq') FROM generate_series(1, :count)
