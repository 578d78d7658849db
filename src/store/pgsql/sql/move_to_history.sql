-- With lane leases, delivered messages leave the outbox at once, also those that were claimed by row. They
-- are found by id: the other condition fits no index.
-- doing: settling messages
-- result: binary
-- table: outbox
-- :ids uuid[]
-- :keep boolean
WITH deleted AS (
	DELETE FROM {schema}postroom_outbox
	WHERE id = ANY (:ids) AND CASE WHEN claims > 0 THEN status = 'delivered' END
	RETURNING {history_columns}
)
INSERT INTO {schema}postroom_history ({history_columns})
SELECT * FROM deleted WHERE :keep
