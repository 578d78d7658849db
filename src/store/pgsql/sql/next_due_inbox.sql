-- For connections behind a pooler, which cannot be notified.
-- Returns whether a job may be claimed now, whether jobs are held or have an expired lease, and in how
-- many milliseconds the next one is due or expires.
-- doing: looking for work
-- table: inbox
-- :handler text
-- :topic text
-- :tenant_id uuid
SELECT false, EXISTS (
		SELECT FROM {schema}postroom_inbox WHERE state = 'held' AND status = 'pending'
			AND namespace = :handler AND (:topic IS NULL OR topic LIKE :topic)
			AND (:tenant_id IS NULL OR NULL = :tenant_id) {rules})
	OR EXISTS (
		SELECT FROM {schema}postroom_inbox WHERE status = 'active'
			AND locked_until <= (SELECT clock_timestamp())
			AND namespace = :handler AND (:topic IS NULL OR topic LIKE :topic)
			AND (:tenant_id IS NULL OR NULL = :tenant_id) {rules}),
	ceil(extract(epoch FROM least(
		(SELECT next_attempt_at FROM {schema}postroom_inbox
			WHERE status = 'pending' AND state IN ('scheduled', 'delayed')
			AND namespace = :handler AND (:topic IS NULL OR topic LIKE :topic)
			AND (:tenant_id IS NULL OR NULL = :tenant_id) {rules}
			ORDER BY next_attempt_at, seq LIMIT 1),
		(SELECT locked_until FROM {schema}postroom_inbox WHERE status = 'active'
			AND locked_until > (SELECT clock_timestamp())
			AND namespace = :handler AND (:topic IS NULL OR topic LIKE :topic)
			AND (:tenant_id IS NULL OR NULL = :tenant_id) {rules}
			ORDER BY locked_until LIMIT 1)) - clock_timestamp()) * 1000)::bigint
