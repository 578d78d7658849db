-- SPDX-License-Identifier: Apache-2.0
-- check: wal-slots
-- title: No replication slot retains WAL
WITH slots AS (
	SELECT slot_name, slot_type, active, wal_status, restart_lsn, pg_wal_lsn_diff(
		CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END, restart_lsn) AS bytes,
		(SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size') = '-1' AS unlimited
	FROM pg_replication_slots
)
SELECT CASE WHEN wal_status IN ('unreserved', 'lost') OR bytes > 1073741824 THEN 'problem' ELSE 'warning' END AS level,
	format('Replication slot "%s" is %s', slot_name, CASE WHEN active THEN 'far behind' ELSE 'inactive' END) AS title,
	format('It retains %s of WAL (%s). When the disk is full, the server stops, and producers with it.',
		coalesce(pg_size_pretty(bytes), 'an unknown amount'),
		CASE WHEN unlimited THEN 'max_slot_wal_keep_size is unlimited' ELSE 'status ' || wal_status END) AS detail,
	CASE WHEN active THEN 'The operator of its consumer finds out why it is slow. If its WAL is lost, it has to start again from a new slot.'
		ELSE 'Restart its consumer. If no consumer needs the slot any more, a superuser runs the command.' END AS advice,
	CASE WHEN NOT active THEN format('SELECT pg_drop_replication_slot(%L);', slot_name) END AS command, false AS fix
FROM slots
WHERE wal_status IN ('unreserved', 'lost') OR (NOT active AND (unlimited OR bytes > 1073741824))
ORDER BY bytes DESC NULLS LAST LIMIT 5
