-- Figures of the outbox by topic, with lane leases: of each state, as many rows as :rows allows.
-- doing: collecting figures
-- :rows bigint
-- :topics int
WITH sample(kind, namespace, topic, attempts, claims, created_at, next_attempt_at) AS (
	(SELECT 'pending', namespace, topic, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE state = 'ready' AND status = 'pending' ORDER BY {lane}, seq LIMIT :rows)
	UNION ALL
	(SELECT 'pending', namespace, topic, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE state IN ('scheduled', 'delayed') AND status = 'pending' ORDER BY next_attempt_at, seq LIMIT :rows)
	UNION ALL
	(SELECT 'pending', namespace, topic, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE state = 'held' AND status = 'pending' ORDER BY key, topic, namespace, seq LIMIT :rows)
	UNION ALL
	(SELECT 'leased', namespace, topic, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE status = 'processing' ORDER BY locked_until LIMIT :rows)
	UNION ALL
	(SELECT 'dead', namespace, topic, attempts, claims, created_at, next_attempt_at FROM {schema}postroom_outbox
	WHERE status = 'dead' ORDER BY id DESC LIMIT :rows)
)
{topic_figures}
