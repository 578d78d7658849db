-- SPDX-License-Identifier: Apache-2.0
-- check: durability
-- title: Committed transactions survive a crash
WITH s AS (SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages,
	current_setting('synchronous_commit') AS commits, current_setting('synchronous_standby_names') AS standbys)
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
