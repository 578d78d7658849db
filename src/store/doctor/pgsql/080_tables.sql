-- SPDX-License-Identifier: Apache-2.0
-- check: table-kind
-- title: The tables are logged, and no policy hides rows
-- needs: tables
WITH ours AS (
	SELECT oid, relname, relrowsecurity, relforcerowsecurity, relpersistence FROM pg_class
	WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{schema}postroom_outbox'::regclass)
		AND relname IN ('postroom_outbox', 'postroom_inbox', 'postroom_dedupe', 'postroom_history', 'postroom_lanes')
)
SELECT 'problem' AS level, format('Table %s is unlogged', relname) AS title,
	'A crash of the server empties an unlogged table: committed messages would be lost.' AS detail,
	'The owner of the tables runs the command. It rewrites the table and blocks all statements on it meanwhile.' AS advice,
	format('ALTER TABLE {schema}%I SET LOGGED;', relname) AS command, false AS fix
FROM ours WHERE relpersistence <> 'p'
UNION ALL
SELECT 'warning', format('Row security is enabled on %s', relname),
	'A policy may hide messages from the relay. Hidden messages are never delivered, and nothing reports them.',
	'The owner of the tables runs the command, or gives the role of the relay BYPASSRLS.',
	format('ALTER TABLE {schema}%I DISABLE ROW LEVEL SECURITY;', relname), false
FROM ours WHERE relrowsecurity
UNION ALL
SELECT 'note', format('Table %s is part of publication "%s"', relname, pubname),
	'Every claim and every settle is decoded and sent to the subscribers.',
	'If no subscriber needs these tables, the owner of the publication removes them.', NULL, false
FROM ours JOIN pg_publication_tables AS p ON p.tablename = relname
	AND p.schemaname = (SELECT nspname FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid WHERE c.oid = ours.oid)
LIMIT 10
