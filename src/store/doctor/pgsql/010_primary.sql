-- SPDX-License-Identifier: Apache-2.0
-- check: primary
-- title: The server is a writable primary
SELECT 'problem' AS level, 'The server is a read-only standby' AS title,
	'pg_is_in_recovery() is true. A relay writes leases and results, so it can deliver nothing here.' AS detail,
	'The operator of the relay names all hosts in the URL and adds target_session_attrs=read-write.' AS advice,
	NULL AS command, false AS fix
WHERE pg_is_in_recovery()
UNION ALL
SELECT 'problem', 'Transactions of this role are read-only by default',
	'default_transaction_read_only is on. A relay writes leases and results, so it can deliver nothing.',
	'A superuser, or a role with CREATEROLE, runs the command. Reconnect afterwards.',
	format('ALTER ROLE %I IN DATABASE %I SET default_transaction_read_only = off;', current_user, current_database()),
	false
WHERE NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'on'
