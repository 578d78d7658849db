-- SPDX-License-Identifier: Apache-2.0
-- check: triggers
-- title: Every trigger is present and enabled
-- needs: tables
SELECT 'problem' AS level, format('Trigger %s is %s', w.name, CASE WHEN t.oid IS NULL THEN 'missing' ELSE 'disabled' END) AS title,
	CASE WHEN w.name LIKE '%\_ring' THEN 'Producers no longer wake the relay: messages wait for its next poll.'
		WHEN w.name LIKE '%\_new' THEN 'Delayed messages are delivered at once, and unusable rows are accepted.'
		WHEN w.name LIKE '%\_purge' THEN 'The inbox keeps no record of the events that it has deleted: they may take effect twice.'
		ELSE 'Dedupe keys are not remembered: a duplicate may be delivered.' END AS detail,
	'The owner of the tables runs the command. It waits for running transactions on the table, so run it in a quiet moment.' AS advice,
	CASE WHEN t.oid IS NULL THEN w.definition || ';'
		ELSE format('ALTER TABLE {schema}%s ENABLE TRIGGER %I;', w.relation, w.name) END AS command, false AS fix
FROM (VALUES {triggers}) AS w(name, relation, definition)
LEFT JOIN pg_trigger AS t ON t.tgname = w.name AND t.tgrelid = to_regclass('{schema}' || w.relation)
WHERE t.oid IS NULL OR t.tgenabled NOT IN ('O', 'A')
ORDER BY 2
