-- SPDX-License-Identifier: Apache-2.0
-- check: notify-queue
-- title: The notification queue is empty
SELECT CASE WHEN usage > 0.5 THEN 'problem' ELSE 'warning' END AS level,
	format('The notification queue is full to %s %%', round(100 * usage::numeric)) AS title,
	'A session that listens idles in a transaction. When the queue is full, commits that notify fail: producers lose their transactions.' AS detail,
	'Find the listening session in pg_stat_activity by its oldest xact_start; a superuser ends it.' AS advice,
	'SELECT pid, application_name, state, xact_start FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5;' AS command, false AS fix
FROM pg_notification_queue_usage() AS usage WHERE usage > 0.1
