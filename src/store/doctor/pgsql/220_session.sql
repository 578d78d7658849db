-- SPDX-License-Identifier: Apache-2.0
-- check: session-settings
-- title: No setting of the role disturbs the relay
SELECT 'warning' AS level, format('idle_session_timeout is %s ms for this role', reset_val) AS title,
	'The server closes the connections of an idle relay, which has to reconnect for the next message.' AS detail,
	'A superuser, or a role with CREATEROLE, runs the command.' AS advice,
	format('ALTER ROLE %I IN DATABASE %I SET idle_session_timeout = 0;', current_user, current_database()) AS command, false AS fix
FROM pg_settings WHERE name = 'idle_session_timeout' AND reset_val::bigint BETWEEN 1 AND 60000
UNION ALL
SELECT 'warning', format('The default isolation level is %s, behind a pooler', reset_val),
	'Behind a pooler the relay cannot set its own level for the session, and claims fail with serialization errors.',
	'A superuser, or a role with CREATEROLE, runs the command.',
	format('ALTER ROLE %I IN DATABASE %I SET default_transaction_isolation = ''read committed'';', current_user, current_database()), false
FROM pg_settings WHERE name = 'default_transaction_isolation' AND reset_val <> 'read committed' AND {pooled}
