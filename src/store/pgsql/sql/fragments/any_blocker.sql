-- A part of a WITH: whether any message with a key may be behind another one.
any_blocker AS MATERIALIZED (
	SELECT (EXISTS (SELECT FROM {schema}postroom_outbox
			WHERE key IS NOT NULL AND state = 'scheduled' AND status IN ('pending', 'processing'))
		OR EXISTS (SELECT FROM {schema}postroom_outbox WHERE state = 'held' AND status = 'pending')
		OR (:dead_block AND EXISTS (
			SELECT FROM {schema}postroom_outbox WHERE key IS NOT NULL AND status = 'dead'))) AS present
)
