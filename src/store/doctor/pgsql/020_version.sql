-- SPDX-License-Identifier: Apache-2.0
-- check: server-version
-- title: The server version is supported
SELECT 'problem' AS level, 'PostgreSQL ' || current_setting('server_version') || ' is too old' AS title,
	'Postroom needs PostgreSQL 13 or newer.' AS detail,
	'The administrator of the server upgrades it.' AS advice, NULL AS command, false AS fix
WHERE current_setting('server_version_num')::int < 130000
