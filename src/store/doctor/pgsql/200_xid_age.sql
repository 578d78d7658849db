-- SPDX-License-Identifier: Apache-2.0
-- check: xid-age
-- title: Transaction ids are far from wraparound
SELECT CASE WHEN greatest(xids, mxids) > 1073741823 THEN 'problem' ELSE 'warning' END AS level,
	format('The oldest transaction id of the database is %s transactions old', greatest(xids, mxids)) AS title,
	'At 2.1 billion the server refuses all writes, enqueue included. Autovacuum is blocked or too slow.' AS detail,
	'A superuser removes what holds back vacuum (see vacuum-horizon) and runs the command.' AS advice,
	'VACUUM (FREEZE);' AS command, false AS fix
FROM (SELECT age(datfrozenxid) AS xids, mxid_age(datminmxid) AS mxids FROM pg_database WHERE datname = current_database()) AS d
WHERE greatest(xids, mxids) > 536870911
