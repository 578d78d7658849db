-- SPDX-License-Identifier: Apache-2.0
-- check: stranded
-- title: Every row is reachable by a claim, a sweep or a purge
-- needs: tables
WITH RECURSIVE handlers(name) AS (
	(SELECT namespace FROM {schema}postroom_inbox WHERE state IN ('scheduled', 'delayed') AND status = 'pending'
		ORDER BY namespace, next_attempt_at, seq LIMIT 1)
	UNION ALL
	SELECT n.namespace FROM handlers AS h CROSS JOIN LATERAL (SELECT namespace FROM {schema}postroom_inbox
		WHERE state IN ('scheduled', 'delayed') AND status = 'pending' AND namespace > h.name
		ORDER BY namespace, next_attempt_at, seq LIMIT 1) AS n
), found(why, number, command) AS (
	SELECT 'pending, held behind a key, but without a key', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE state = 'held' AND status = 'pending' AND key IS NULL LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET state = ''scheduled'' WHERE state = ''held'' AND status = ''pending'' AND key IS NULL;'
	UNION ALL SELECT 'pending, due in more than ten years', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE state IN ('scheduled', 'delayed') AND status = 'pending' AND next_attempt_at > clock_timestamp() + interval '3660 days' LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET next_attempt_at = clock_timestamp() WHERE state IN (''scheduled'', ''delayed'') AND status = ''pending'' AND next_attempt_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'pending and ready, due in more than ten years', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE key IS NULL AND state = 'ready' AND status = 'pending' AND next_attempt_at > clock_timestamp() + interval '3660 days'
			AND 'row' = (SELECT lease FROM {schema}postroom_lanes LIMIT 1) LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET next_attempt_at = clock_timestamp() WHERE key IS NULL AND state = ''ready'' AND status = ''pending'' AND next_attempt_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'leased for more than a week', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE status = 'processing' AND locked_until > clock_timestamp() + interval '7 days' LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET locked_until = clock_timestamp() WHERE status = ''processing'' AND locked_until > clock_timestamp() + interval ''7 days'';'
	UNION ALL SELECT 'delivered without a delivered_at, so never purged', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE status = 'delivered' AND delivered_at IS NULL LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET delivered_at = updated_at WHERE status = ''delivered'' AND delivered_at IS NULL;'
	UNION ALL SELECT 'in the history without a delivered_at, so never purged', (SELECT count(*) FROM (SELECT FROM {schema}postroom_history
		WHERE delivered_at IS NULL LIMIT 1000) AS h),
		'UPDATE {schema}postroom_history SET delivered_at = clock_timestamp() WHERE delivered_at IS NULL;'
	UNION ALL SELECT 'purged only in more than ten years', (SELECT count(*) FROM (SELECT FROM {schema}postroom_outbox
		WHERE status = 'delivered' AND delivered_at > clock_timestamp() + interval '3660 days' LIMIT 1000) AS o),
		'UPDATE {schema}postroom_outbox SET delivered_at = clock_timestamp() WHERE status = ''delivered'' AND delivered_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'in the history, purged only in more than ten years', (SELECT count(*) FROM (SELECT FROM {schema}postroom_history
		WHERE delivered_at > clock_timestamp() + interval '3660 days' LIMIT 1000) AS h),
		'UPDATE {schema}postroom_history SET delivered_at = clock_timestamp() WHERE delivered_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'in the inbox, purged only in more than ten years', (SELECT count(*) FROM (SELECT FROM {schema}postroom_inbox
		WHERE status = 'completed' AND updated_at > clock_timestamp() + interval '3660 days' LIMIT 1000) AS i),
		'UPDATE {schema}postroom_inbox SET updated_at = clock_timestamp() WHERE status = ''completed'' AND updated_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'pending in the inbox, held behind a key, but without a key', (SELECT count(*) FROM (SELECT FROM {schema}postroom_inbox
		WHERE state = 'held' AND status = 'pending' AND key IS NULL LIMIT 1000) AS i),
		'UPDATE {schema}postroom_inbox SET state = ''scheduled'' WHERE state = ''held'' AND status = ''pending'' AND key IS NULL;'
	UNION ALL SELECT 'pending in the inbox, due in more than ten years', (SELECT count(*) FROM (SELECT FROM (SELECT name FROM handlers LIMIT 100) AS h
		CROSS JOIN LATERAL (SELECT FROM {schema}postroom_inbox WHERE state IN ('scheduled', 'delayed') AND status = 'pending' AND namespace = h.name
			AND next_attempt_at > clock_timestamp() + interval '3660 days' LIMIT 1000) AS i LIMIT 1000) AS i),
		'UPDATE {schema}postroom_inbox SET next_attempt_at = clock_timestamp() WHERE status = ''pending'' AND next_attempt_at > clock_timestamp() + interval ''3660 days'';'
	UNION ALL SELECT 'lanes, leased for more than a week', (SELECT count(*) FROM {schema}postroom_lanes
		WHERE locked_until > clock_timestamp() + interval '7 days'),
		'UPDATE {schema}postroom_lanes SET locked_until = clock_timestamp() WHERE locked_until > clock_timestamp() + interval ''7 days'';'
	UNION ALL SELECT 'leased in the inbox for more than a week', (SELECT count(*) FROM (SELECT FROM {schema}postroom_inbox
		WHERE status = 'active' AND locked_until > clock_timestamp() + interval '7 days' LIMIT 1000) AS i),
		'UPDATE {schema}postroom_inbox SET locked_until = clock_timestamp() WHERE status = ''active'' AND locked_until > clock_timestamp() + interval ''7 days'';'
)
SELECT 'problem' AS level, format('%s%s stranded rows: %s', number, CASE WHEN number = 1000 THEN ' or more' END, why) AS title,
	'No claim, sweep or purge will ever find them. Their columns were changed by hand.' AS detail,
	'The owner of the tables looks at the rows and runs the command.' AS advice, command, false AS fix
FROM found WHERE number > 0
UNION ALL
SELECT 'problem', format('%s of 64 lanes are missing', 64 - count(DISTINCT lane)),
	'Messages whose key belongs to a missing lane are never claimed.', 'The owner of the tables runs the command.',
	'INSERT INTO {schema}postroom_lanes (lane, lease) SELECT n, coalesce((SELECT lease FROM {schema}postroom_lanes LIMIT 1), ''row'') '
		'FROM generate_series(1, 64) AS n WHERE n NOT IN (SELECT lane FROM {schema}postroom_lanes);', false
FROM {schema}postroom_lanes WHERE lane BETWEEN 1 AND 64 HAVING count(DISTINCT lane) < 64
