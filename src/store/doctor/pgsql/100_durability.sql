-- SPDX-License-Identifier: Apache-2.0
-- check: durability
-- title: Committed transactions survive a crash
WITH s AS (SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
	current_setting('synchronous_commit') AS commits, current_setting('synchronous_standby_names') AS standbys),
-- The settings of other roles: producers have them, and this session does not see their effect.
roles(role, place, value) AS (
	SELECT r.rolname, CASE WHEN d.datname IS NOT NULL THEN format(' IN DATABASE %I', d.datname) END, split_part(c, '=', 2)
	FROM pg_db_role_setting CROSS JOIN unnest(setconfig) AS c JOIN pg_roles AS r ON r.oid = setrole
	LEFT JOIN pg_database AS d ON d.oid = setdatabase
	WHERE c IN ('synchronous_commit=off', 'synchronous_commit=local') AND r.rolname <> current_user
		AND (setdatabase = 0 OR d.datname = current_database())
)
SELECT 'problem' AS level, 'fsync is off' AS title,
	'A crash of the machine can corrupt the database: messages and their business data are lost.' AS detail,
	'A superuser runs the commands.' AS advice,
	E'ALTER SYSTEM SET fsync = on;\nSELECT pg_reload_conf();' AS command, false AS fix
FROM s WHERE fsync = 'off'
UNION ALL
SELECT 'warning', 'full_page_writes is off',
	'After a crash, pages may be torn unless the file system writes them atomically (ZFS).',
	'A superuser runs the commands.', E'ALTER SYSTEM SET full_page_writes = on;\nSELECT pg_reload_conf();', false
FROM s WHERE pages = 'off'
UNION ALL
SELECT 'warning', 'Commits do not wait for the synchronous standby',
	format('synchronous_commit is %s for this role. A relay may publish messages whose transaction a failover loses.', commits),
	'A superuser, or a role with CREATEROLE, runs the command for the roles of producers and relays.',
	format('ALTER ROLE %I IN DATABASE %I SET synchronous_commit = on;', current_user, current_database()), false
FROM s WHERE standbys <> '' AND commits IN ('off', 'local')
UNION ALL
SELECT 'note', 'synchronous_commit is off for this role',
	'After a crash, the last settled messages are delivered again, and the last messages may vanish with their business data.',
	'That is consistent. To avoid it, a role with CREATEROLE runs the command.',
	format('ALTER ROLE %I IN DATABASE %I SET synchronous_commit = on;', current_user, current_database()), false
FROM s WHERE standbys = '' AND commits = 'off'
UNION ALL
SELECT CASE WHEN standbys = '' THEN 'note' ELSE 'warning' END, format('synchronous_commit is %s for role "%s"', value, role),
	CASE WHEN standbys = '' THEN 'If the role is a producer, a crash may lose its last messages together with their business data.'
		ELSE 'If the role is a producer, a relay may publish messages whose transaction a failover loses.' END,
	CASE WHEN standbys = '' THEN 'That is consistent. To avoid it, a role with CREATEROLE runs the command.'
		ELSE 'A superuser, or a role with CREATEROLE, runs the command.' END,
	format('ALTER ROLE %I%s RESET synchronous_commit;', role, place), false
FROM s, roles WHERE value = 'off' OR standbys <> ''
