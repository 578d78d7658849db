-- SPDX-License-Identifier: Apache-2.0
-- check: server-version
-- title: The server version is supported
-- The last day of fixes for each major version, as postgresql.org/support/versioning lists it.
WITH server(major, version) AS (SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version')),
ends(major, day) AS (VALUES (13, date '2025-11-13'), (14, '2026-11-12'), (15, '2027-11-11'), (16, '2028-11-09'),
	(17, '2029-11-08'), (18, '2030-11-14'))
SELECT 'problem' AS level, format('PostgreSQL %s is too old', version) AS title,
	'Postroom needs PostgreSQL 13 or newer.' AS detail,
	'The administrator of the server upgrades it.' AS advice, NULL AS command, false AS fix
FROM server WHERE major < 13
UNION ALL
SELECT 'note', format('PostgreSQL %s is no longer maintained', version),
	format('Version %s has had no fixes since %s. An error that loses rows or opens the database to others stays.', major, day),
	'The administrator of the server upgrades it, for example with pg_upgrade. See docs/upgrading.md for the relays.', NULL, false
FROM server JOIN ends USING (major) WHERE clock_timestamp() >= day + 1
