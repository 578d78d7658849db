-- SPDX-License-Identifier: Apache-2.0
-- check: adopted
-- title: Adopted tables are mirrored, and no row was rejected
-- needs: tables
-- relation: postroom_adopted
WITH adopted AS (
	-- For the shell: a quote inside of quotes is '\''. Rows that are deleted, or never marked, are not opened again.
	SELECT table_name, to_regclass(table_name) AS relid, '''' || replace(table_name, '''', '''\''''') || '''' AS word,
		coalesce(mapping->>'done', '') NOT IN ('delete', 'none') AS marked
	FROM {schema}postroom_adopted ORDER BY table_name LIMIT 100
), wanted AS (
	SELECT a.table_name, a.word, part.relid, name
	FROM adopted AS a CROSS JOIN LATERAL (SELECT relid FROM pg_partition_tree(a.relid) UNION SELECT a.relid) AS part
	JOIN pg_class AS c ON c.oid = part.relid
	CROSS JOIN unnest(ARRAY['postroom_adopt_insert', 'postroom_adopt_reopen']) AS name
	WHERE name = 'postroom_adopt_insert' OR a.marked AND c.relkind = 'r'
), mirrors AS (
	SELECT table_name, word, count(t.oid) FILTER (WHERE name = 'postroom_adopt_insert') AS number,
		string_agg(format('ALTER TABLE %s ENABLE TRIGGER %I;', t.tgrelid::regclass, t.tgname), E'\n' ORDER BY t.oid)
			FILTER (WHERE t.tgenabled NOT IN ('O', 'A')) AS enable,
		count(DISTINCT w.relid) FILTER (WHERE t.oid IS NULL) AS lacking,
		min(w.relid::regclass::text) FILTER (WHERE t.oid IS NULL) AS relation
	FROM wanted AS w LEFT JOIN pg_trigger AS t ON t.tgrelid = w.relid AND t.tgname = name
	GROUP BY table_name, word
), rejects AS (
	SELECT table_name, word, r.*
	FROM adopted AS a CROSS JOIN LATERAL (SELECT count(*) AS number, min(reason) AS reason FROM (
		SELECT reason FROM {schema}postroom_adopt_rejects WHERE table_name = a.table_name ORDER BY row_key LIMIT 1000) AS x) AS r
), ids AS (
	SELECT a.table_name, c.attname, d.objid::regclass AS sequence, s.last_value,
		least(s.max_value, CASE c.atttypid WHEN 'smallint'::regtype THEN 32767 WHEN 'integer'::regtype THEN 2147483647 ELSE s.max_value END) AS highest
	FROM adopted AS a JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.relid AND d.classid = 'pg_class'::regclass
		AND d.deptype IN ('a', 'i')
	JOIN pg_attribute AS c ON c.attrelid = a.relid AND c.attnum = d.refobjsubid
	JOIN pg_sequences AS s ON format('%I.%I', s.schemaname, s.sequencename)::regclass = d.objid
), unprivileged AS (
	SELECT a.table_name, a.word, string_agg(format('"%s"', r.rolname), ', ' ORDER BY r.rolname) AS roles
	FROM adopted AS a CROSS JOIN pg_roles AS r
	WHERE a.relid IS NOT NULL AND NOT r.rolsuper AND r.rolname !~ '^pg_' AND has_any_column_privilege(r.oid, a.relid, 'INSERT')
		AND NOT (has_schema_privilege(r.oid, (SELECT relnamespace FROM pg_class WHERE oid = '{schema}postroom_outbox'::regclass), 'USAGE')
			AND has_any_column_privilege(r.oid, '{schema}postroom_outbox', 'INSERT')
			AND has_any_column_privilege(r.oid, '{schema}postroom_adopt_rejects', 'INSERT')
			AND has_sequence_privilege(r.oid, '{schema}postroom_notify_until', 'SELECT'))
	GROUP BY a.table_name, a.word
)
SELECT 'problem' AS level, format('The mirror of table %s is %s', table_name, CASE WHEN number = 0 THEN 'missing' ELSE 'disabled' END) AS title,
	'New rows of the table do not become messages.' AS detail,
	CASE WHEN number = 0 THEN 'The operator runs the command as the owner of the table. It also moves the rows that were missed.'
		ELSE 'The owner of the table runs the command. Then "postroom adopt" moves the rows that were missed.' END AS advice,
	CASE WHEN number = 0 THEN format('postroom adopt %s --yes', word) ELSE enable END AS command, false AS fix
FROM mirrors WHERE number = 0 OR enable IS NOT NULL
UNION ALL
SELECT 'warning', format('The mirror of table %s is incomplete', table_name),
	format('Triggers are missing on %s of its tables and partitions, such as %s. Rows that are inserted there directly, or opened again, do not become messages.',
		lacking, relation),
	'The operator runs the command as the owner of the table, and after each new partition. It also moves the rows that were missed.',
	format('postroom adopt %s --yes', word), false
FROM mirrors WHERE number > 0 AND enable IS NULL AND lacking > 0
UNION ALL
SELECT 'note', format('The adopted table %s does not exist', table_name),
	'It was dropped or renamed. Rows of a renamed table do not become messages.',
	'If it was renamed, run "postroom adopt" for the new name first. The owner of the tables then runs the commands.',
	format(E'DELETE FROM {schema}postroom_adopt_rejects WHERE table_name = %1$L;\n'
		'DELETE FROM {schema}postroom_adopted WHERE table_name = %1$L;', table_name), false
FROM adopted WHERE relid IS NULL
UNION ALL
SELECT 'warning', format('%s%s rows of table %s were rejected', number, CASE number WHEN 1000 THEN ' or more' ELSE '' END, table_name),
	format('They are not sent. One of the reasons: %s', reason),
	'The operator corrects the rows that the command lists, and then runs "postroom adopt" again.',
	format('postroom adopt %s --status', word), false
FROM rejects WHERE number > 0
UNION ALL
SELECT 'warning', format('Producers of table %s cannot write messages', table_name),
	format('The mirror has the privileges of the producer. Rows that the role %s inserts do not become messages, and are not recorded as rejected.', roles),
	'The operator runs the command as the owner of the table. It prints GRANTs. Run these, then the command again: it moves the rows that were missed.',
	format('postroom adopt %s --yes', word), false
FROM unprivileged
UNION ALL
SELECT CASE WHEN last_value > 0.9 * highest THEN 'problem' ELSE 'warning' END,
	format('Column %s of %s is used up to %s %%', attname, table_name, round(100.0 * last_value / highest)),
	'At its end, producers can no longer insert rows.',
	'The owner of the table runs the commands in a quiet moment. The first one rewrites the table and blocks all sessions meanwhile.',
	format(E'ALTER TABLE %s ALTER COLUMN %I TYPE bigint;\nALTER SEQUENCE %s AS bigint;', table_name, attname, sequence), false
FROM ids WHERE last_value > 0.75 * highest
LIMIT 20
