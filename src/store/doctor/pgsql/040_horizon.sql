-- SPDX-License-Identifier: Apache-2.0
-- check: vacuum-horizon
-- title: Nothing holds back vacuum
-- needs: tables
-- sees: sessions
WITH dead(rows) AS (
	SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables
	WHERE relid IN ('{schema}postroom_outbox'::regclass, '{schema}postroom_lanes'::regclass)
), holders(kind, about, held, xids, advice, command) AS (
	-- Only sessions of this database hold back its tables. A vacuum does not hold back another one.
	SELECT 'Session ' || pid, concat_ws(', ', nullif(application_name, ''), usename, client_addr, state),
		clock_timestamp() - xact_start, NULL::int, 'Find out who owns it first. A superuser, or its owner, then runs the command.',
		format('SELECT pg_terminate_backend(%s);', pid)
	FROM pg_stat_activity
	WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
		AND backend_type NOT IN ('walsender', 'autovacuum worker', 'parallel worker') AND datname = current_database()
		AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
	UNION ALL
	SELECT format('Prepared transaction "%s"', gid), 'prepared by ' || owner, clock_timestamp() - prepared, NULL,
		'Find out from its transaction manager whether it is to be committed (COMMIT PREPARED). If not, a superuser, or its owner, runs the command.',
		format('ROLLBACK PREPARED %L;', gid)
	FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL
	-- catalog_xmin pins catalogs only: a logical slot is the concern of wal-slots.
	SELECT format('Replication slot "%s"', slot_name), slot_type || CASE WHEN active THEN ', active' ELSE ', inactive' END, NULL, age(xmin),
		CASE WHEN active THEN 'The administrator of the standby that uses it ends its long query, or sets hot_standby_feedback = off there.'
			ELSE 'Restart its standby. If no standby needs the slot any more, a superuser runs the command.' END,
		CASE WHEN NOT active THEN format('SELECT pg_drop_replication_slot(%L);', slot_name) END
	FROM pg_replication_slots WHERE xmin IS NOT NULL
	UNION ALL
	SELECT format('Standby "%s"', application_name), 'by hot_standby_feedback', NULL, age(backend_xmin),
		'The administrator of the standby ends its long query, or sets hot_standby_feedback = off there.', NULL
	FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
), late AS (
	SELECT * FROM holders WHERE held >= interval '{patience_ms} ms' OR xids > 100000 ORDER BY held DESC NULLS LAST, xids DESC LIMIT 5
), others(who, held) AS (
	SELECT format('session %s of database "%s"', pid, datname), clock_timestamp() - xact_start FROM pg_stat_activity
	WHERE coalesce(backend_xmin, backend_xid) IS NOT NULL AND datname <> current_database()
		AND backend_type NOT IN ('walsender', 'autovacuum worker', 'parallel worker') AND clock_timestamp() - xact_start >= interval '{patience_ms} ms'
	UNION ALL
	SELECT format('prepared transaction "%s" of database "%s"', gid, database), clock_timestamp() - prepared
	FROM pg_prepared_xacts WHERE database <> current_database() AND clock_timestamp() - prepared >= interval '{patience_ms} ms'
)
SELECT CASE WHEN dead.rows > 50000 THEN 'problem' ELSE 'warning' END AS level,
	kind || ' holds back vacuum' AS title,
	format('%s; %s. %s dead rows of the outbox cannot be removed, and each claim has to pass them.', about,
		coalesce('open for ' || date_trunc('second', held), format('%s transactions behind', xids)), dead.rows) AS detail,
	advice, command, false AS fix
FROM late, dead
UNION ALL
SELECT 'ok', 'Nothing holds back vacuum', 'Open for long, but without effect on these tables: '
	|| string_agg(who, ', ' ORDER BY held DESC) || '.', NULL, NULL, false
FROM (SELECT * FROM others ORDER BY held DESC LIMIT 5) AS o WHERE NOT EXISTS (SELECT FROM late) HAVING count(*) > 0
