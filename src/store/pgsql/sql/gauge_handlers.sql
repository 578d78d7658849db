-- Figures of the inbox by handler: of each state, as many rows as :rows allows.
-- doing: collecting figures
-- :rows bigint
-- :topics int
WITH sample(kind, namespace, topic, attempts, claims, created_at, next_attempt_at) AS (
	(SELECT 'pending', NULL::text, handler_name, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_inbox
	WHERE state IN ('scheduled', 'delayed') AND status = 'pending' ORDER BY namespace, next_attempt_at, seq LIMIT :rows)
	UNION ALL
	(SELECT 'pending', NULL::text, handler_name, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_inbox
	WHERE state = 'held' AND status = 'pending' ORDER BY key, topic, namespace, seq LIMIT :rows)
	UNION ALL
	(SELECT 'leased', NULL::text, handler_name, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_inbox
	WHERE status = 'active' ORDER BY locked_until LIMIT :rows)
	UNION ALL
	(SELECT 'dead', NULL::text, handler_name, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_inbox
	WHERE status = 'dead' ORDER BY seq DESC LIMIT :rows)
)
{topic_figures}
