-- SPDX-License-Identifier: Apache-2.0
-- check: delivering
-- title: Due messages are being delivered
-- needs: tables
-- The oldest due message of each claim path; each sub-select reads the head of one index.
WITH oldest(due) AS (
	SELECT min(next_attempt_at) FROM (
		(SELECT next_attempt_at FROM {schema}postroom_outbox WHERE key IS NULL AND state = 'ready' AND status = 'pending'
			AND 'row' = (SELECT lease FROM {schema}postroom_lanes LIMIT 1) ORDER BY next_attempt_at, seq LIMIT 1)
		UNION ALL (SELECT next_attempt_at FROM {schema}postroom_outbox WHERE state IN ('scheduled', 'delayed') AND status = 'pending'
			ORDER BY next_attempt_at, seq LIMIT 1)
		UNION ALL (SELECT o.next_attempt_at FROM generate_series(1, 64) AS lane CROSS JOIN LATERAL (
			SELECT next_attempt_at FROM {schema}postroom_outbox
			WHERE ((CASE WHEN key IS NULL THEN seq ELSE hashtext(key) END & 63) + 1) = lane {keyed}
				AND state = 'ready' AND status = 'pending' ORDER BY seq LIMIT 1) AS o)) AS heads
), relay AS (
	SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'postroom%' AND pid <> pg_backend_pid()
			AND datname = current_database())
		OR coalesce(pg_sequence_last_value('{schema}postroom_notify_until'), 0) > extract(epoch FROM clock_timestamp()) * 1000
		OR EXISTS (SELECT FROM {schema}postroom_outbox WHERE status = 'processing' AND locked_until > clock_timestamp())
		OR EXISTS (SELECT FROM {schema}postroom_lanes WHERE locked_until > clock_timestamp()) AS seen
)
SELECT 'warning' AS level, CASE WHEN seen THEN 'Due messages wait although a relay is connected' ELSE 'No relay delivers messages' END AS title,
	format('The oldest due message has waited for %s.', date_trunc('second', clock_timestamp() - due)) AS detail,
	CASE WHEN seen THEN 'Look at the log of the relay: its sink may be down, or its scope or routes may not include the message.'
		ELSE 'The operator starts a relay. See its log if one should be running.' END AS advice,
	CASE WHEN seen THEN 'postroom list --status pending --limit 5' ELSE 'postroom relay --config postroom.yaml' END AS command, false AS fix
FROM oldest, relay WHERE due < clock_timestamp() - interval '{patience_ms} ms'
