-- SPDX-License-Identifier: Apache-2.0
-- check: retention
-- title: Old rows are purged
-- needs: tables
-- Delivered messages are in the outbox or, with lane leases, in the history: one purge deletes both.
WITH oldest(what, at, kept_ms, advice, command) AS (
	SELECT 'delivered messages', least((SELECT delivered_at FROM {schema}postroom_outbox WHERE status = 'delivered'
			ORDER BY delivered_at LIMIT 1)::timestamptz,
		(SELECT delivered_at FROM {schema}postroom_history ORDER BY delivered_at LIMIT 1)), {retention_ms}::bigint,
		'A running relay purges them. To do it now, the operator runs the command.',
		'postroom purge --status delivered --older-than {retention_ms}ms --yes'
	UNION ALL SELECT 'completed events of the inbox', (SELECT updated_at FROM {schema}postroom_inbox WHERE status = 'completed'
		ORDER BY updated_at LIMIT 1), {inbox_retention_ms}::bigint,
		'A running relay purges them. To do it now, the operator runs the command.',
		'postroom inbox purge --status completed --older-than {inbox_retention_ms}ms --yes'
	-- The key of a message that still exists stays. Only the oldest keys are read.
	UNION ALL SELECT 'dedupe keys of deleted messages', (SELECT created_at FROM (SELECT * FROM {schema}postroom_dedupe
			ORDER BY created_at LIMIT 1000) AS d
		WHERE NOT EXISTS (SELECT FROM {schema}postroom_outbox AS o WHERE o.namespace = d.namespace
			AND o.topic = d.topic AND o.dedupe_key = d.dedupe_key) ORDER BY created_at LIMIT 1), {dedupe_retention_ms}::bigint,
		'Only a running relay purges them. The operator starts one.', 'postroom relay --config postroom.yaml'
)
SELECT 'note' AS level, format('The oldest %s are from %s', what, to_char(at, 'YYYY-MM-DD')) AS title,
	format('They should be purged after %s. No relay purges them, or it does not keep up, and the table grows.', kept_ms * interval '1 ms') AS detail,
	advice, command, false AS fix
FROM oldest WHERE kept_ms >= 0 AND at < clock_timestamp() - kept_ms * interval '1 ms' - interval '1 day'
UNION ALL
SELECT 'note', format('There are dead letters from %s', to_char(created_at, 'YYYY-MM-DD')),
	'They have waited for a decision for more than 30 days.',
	'The operator looks at their errors, and then retries or purges them.', 'postroom list --status dead', false
FROM (SELECT created_at FROM {schema}postroom_outbox WHERE status = 'dead' ORDER BY id LIMIT 1) AS d
WHERE created_at < clock_timestamp() - interval '30 days'
UNION ALL
SELECT 'note', format('There are dead events in the inbox from %s', to_char(created_at, 'YYYY-MM-DD')),
	'They have waited for a decision for more than 30 days.',
	'The operator looks at their errors, and then retries or purges them.', 'postroom inbox list --status dead', false
FROM (SELECT created_at FROM {schema}postroom_inbox WHERE status = 'dead' ORDER BY seq LIMIT 1) AS d
WHERE created_at < clock_timestamp() - interval '30 days'
