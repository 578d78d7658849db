-- SPDX-License-Identifier: Apache-2.0
-- check: vacuum-horizon
-- title: Nothing holds back vacuum
-- needs: tables
-- sees: sessions
WITH dead(rows) AS (
	SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables
	WHERE relid IN ('{schema}postroom_outbox'::regclass, '{schema}postroom_lanes'::regclass)
), holders(kind, who, about, held, command) AS (
	-- Only sessions of this database hold back its tables.
	SELECT 'Session ' || pid, pid::text, concat_ws(', ', nullif(application_name, ''), usename, client_addr, state),
		clock_timestamp() - xact_start, format('SELECT pg_terminate_backend(%s);', pid)
	FROM pg_stat_activity
	WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
		AND backend_type NOT IN ('walsender', 'autovacuum worker') AND datname = current_database()
	UNION ALL
	SELECT format('Prepared transaction "%s"', gid), gid, 'prepared by ' || owner,
		clock_timestamp() - prepared, format('ROLLBACK PREPARED %L;', gid)
	FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL
	-- catalog_xmin pins catalogs only: a logical slot is the concern of wal-slots.
	SELECT format('Replication slot "%s"', slot_name), slot_name::text,
		slot_type || CASE WHEN active THEN ', active' ELSE ', inactive' END,
		CASE WHEN age(xmin) > 100000 THEN interval '1 day' ELSE interval '0' END,
		format('SELECT pg_drop_replication_slot(%L);', slot_name)
	FROM pg_replication_slots WHERE xmin IS NOT NULL
	UNION ALL
	SELECT format('Standby "%s"', application_name), pid::text, 'by hot_standby_feedback',
		CASE WHEN age(backend_xmin) > 100000 THEN interval '1 day' ELSE interval '0' END, NULL
	FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
)
SELECT CASE WHEN dead.rows > 50000 THEN 'problem' ELSE 'warning' END AS level,
	kind || ' holds back vacuum' AS title,
	format('%s; open for %s. %s dead rows of the outbox cannot be removed, and each claim has to pass them.',
		about, date_trunc('second', held), dead.rows) AS detail,
	CASE WHEN command IS NULL THEN 'The administrator of the standby ends its long query, or sets hot_standby_feedback = off there.'
		ELSE 'Find out who owns it first. A superuser, or its owner, then runs the command.' END AS advice,
	command, false AS fix
FROM holders, dead WHERE held >= interval '{patience_ms} ms' ORDER BY held DESC LIMIT 5
