-- SPDX-License-Identifier: Apache-2.0
-- check: connections
-- title: There are enough connections
WITH c AS (
	SELECT (SELECT sum(numbackends) FROM pg_stat_database) AS used,
		current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
			- coalesce(current_setting('reserved_connections', true)::int, 0) AS usable,
		(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS role_limit,
		(SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database_limit, {workers} + 3 AS needed
)
SELECT 'warning' AS level, format('%s of %s connections are in use', used, usable) AS title,
	'When none is left, producers and relays cannot connect.' AS detail,
	'A superuser closes idle sessions or raises max_connections and restarts the server; a pooler such as PgBouncer helps.' AS advice,
	NULL AS command, false AS fix
FROM c WHERE used > 0.8 * usable
UNION ALL
SELECT 'warning', format('Role "%s" may open only %s connections', current_user, role_limit),
	format('A relay with this configuration needs %s: one per worker, one for the janitor and two to spare.', needed),
	'A superuser, or a role with CREATEROLE, runs the command.', format('ALTER ROLE %I CONNECTION LIMIT -1;', current_user), false
FROM c WHERE role_limit >= 0 AND role_limit < needed
UNION ALL
SELECT 'warning', format('The database accepts only %s connections', database_limit),
	format('A relay with this configuration needs %s: one per worker, one for the janitor and two to spare.', needed),
	'The owner of the database runs the command.', format('ALTER DATABASE %I CONNECTION LIMIT -1;', current_database()), false
FROM c WHERE database_limit >= 0 AND database_limit < needed
