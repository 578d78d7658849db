-- SPDX-License-Identifier: Apache-2.0
-- check: privileges
-- title: The role has the privileges of a relay
-- needs: tables
WITH wanted(name, privilege) AS (VALUES
	('migrations', 'SELECT'), ('messages', 'SELECT'), ('outbox', 'SELECT'), ('outbox', 'DELETE'),
	('outbox', 'UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until, '
		'last_attempt_at, last_error, updated_at, delivered_at, state)'),
	('lanes', 'SELECT'), ('lanes', 'UPDATE (locked_by, locked_until, epoch, in_flight, low_water_seq, passed, passed_from)'),
	('history', 'SELECT'), ('history', 'INSERT'), ('history', 'DELETE'), ('history', 'UPDATE (delivered_at)'),
	('dedupe', 'SELECT'), ('dedupe', 'DELETE'), ('dedupe', 'UPDATE (created_at)'),
	('attempts', 'SELECT'), ('attempts', 'INSERT'), ('attempts', 'DELETE'), ('inbox', 'SELECT'), ('inbox', 'DELETE'),
	('inbox', 'UPDATE (seq, status, attempts, next_attempt_at, updated_at, state)'),
	('inbox_purged', 'SELECT'), ('inbox_purged', 'INSERT'), ('inbox_purged', 'UPDATE')
), missing(name, privilege) AS (
	SELECT '{schema}postroom_' || name, privilege FROM wanted
	WHERE NOT CASE WHEN privilege LIKE 'UPDATE (%'
		THEN NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{schema}postroom_' || name) AND NOT attisdropped
			AND attname = ANY (string_to_array(trim(BOTH '()' FROM substr(privilege, 8)), ', '))
			AND NOT has_column_privilege(attrelid, attnum, 'UPDATE'))
		ELSE has_table_privilege('{schema}postroom_' || name, privilege) END
	UNION ALL
	SELECT 'SEQUENCE {schema}' || name, privilege
	FROM (VALUES ('postroom_outbox_seq_seq', 'USAGE'), ('postroom_inbox_seq_seq', 'USAGE'),
		('postroom_notify_until', 'SELECT'), ('postroom_notify_until', 'UPDATE')) AS sequences(name, privilege)
	WHERE NOT has_sequence_privilege('{schema}' || name, privilege)
)
SELECT 'problem' AS level, format('Role "%s" lacks %s privileges that a relay needs', current_user, count(*)) AS title,
	'Missing: ' || string_agg(split_part(privilege, ' ', 1) || ' on ' || name, ', ')
		|| '. A relay with this role fails to claim, settle or purge.' AS detail,
	'The owner of the tables runs the command, or postgres-roles.sql. Ignore this if another role runs the relay.' AS advice,
	string_agg(format('GRANT %s ON %s TO %I;', privilege, name, current_user), E'\n') AS command, false AS fix
FROM missing HAVING count(*) > 0
