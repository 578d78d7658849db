-- SPDX-License-Identifier: Apache-2.0
-- check: collation
-- title: The collation version is that of the operating system
-- since: 150000
SELECT 'note' AS level, 'The operating system sorts text differently than when the database was created' AS title,
	'Indexes on text of your own tables may be wrong. Those of Postroom compare bytes and are not affected.' AS detail,
	'The owner of the database rebuilds its indexes on text (REINDEX), then runs the command.' AS advice,
	format('ALTER DATABASE %I REFRESH COLLATION VERSION;', datname) AS command, false AS fix
FROM pg_database WHERE datname = current_database() AND datcollversion IS DISTINCT FROM pg_database_collation_actual_version(oid)
