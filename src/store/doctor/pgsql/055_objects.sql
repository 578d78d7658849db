-- SPDX-License-Identifier: Apache-2.0
-- check: objects
-- title: Tables, columns, constraints and functions are as the migrations made them
-- needs: schema
-- Missing objects come first. Their commands run in the order of the migrations.
WITH wanted AS (
	SELECT *, '{schema}' || coalesce(relation, name) AS owner, row_number() OVER () AS number
	FROM (VALUES {objects}) AS objects(kind, not_null, relation, name, type, fallback, definition)
), columns AS (
	SELECT w.*, a.attname, a.atttypid IS DISTINCT FROM to_regtype(w.type)::oid AS other_type,
		format_type(a.atttypid, a.atttypmod) AS present_type, w.not_null AND NOT a.attnotnull AS nullable,
		w.fallback IS NOT NULL AND replace(w.fallback, '{schema}', '') IS DISTINCT FROM
			regexp_replace(replace(pg_get_expr(d.adbin, d.adrelid), '{schema}', ''), '::[a-z_.]+$', '') AS other_default
	FROM wanted AS w
	LEFT JOIN pg_attribute AS a ON a.attrelid = to_regclass(owner) AND a.attname = name AND a.attnum > 0 AND NOT a.attisdropped
	LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	WHERE kind = 'column' AND to_regclass(owner) IS NOT NULL
), functions AS (
	SELECT w.*, bool_or(p.oid IS NOT NULL) AS present, coalesce(bool_or(p.prosrc = w.type), false) AS same
	FROM wanted AS w LEFT JOIN pg_proc AS p ON p.proname = w.name
		AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{schema}postroom_migrations'::regclass)
	WHERE kind = 'function' GROUP BY w.kind, w.not_null, w.relation, w.name, w.type, w.fallback, w.definition, w.owner, w.number
), found(number, level, title, detail, advice, command) AS (
	SELECT number, 'problem', format('%s %s is missing', initcap(kind), name),
		CASE kind WHEN 'table' THEN 'Statements that use the table fail, and its rows are lost.'
			ELSE 'Statements of producers or relays that use it fail.' END,
		CASE kind WHEN 'table' THEN 'If a backup has the rows, the administrator restores it. Otherwise the owner of the tables runs the command, and then doctor again.'
			ELSE 'The owner of the tables runs the command.' END, definition || ';'
	FROM wanted
	WHERE kind IN ('table', 'view', 'sequence') AND to_regclass(owner) IS NULL OR kind IN ('domain', 'type') AND to_regtype(owner) IS NULL
	UNION ALL
	SELECT number, 'problem', format('Column %s of %s is missing', name, relation),
		'Statements of producers or relays that use it fail.', 'The owner of the tables runs the command.',
		format('ALTER TABLE %s ADD COLUMN %s;', owner, definition)
	FROM columns WHERE attname IS NULL
	UNION ALL
	SELECT number, 'warning', format('Column %s of %s has another type', name, relation),
		format('It is %s and should be %s. Rows that the relay cannot handle are accepted, or indexes are not used.', present_type, type),
		'The owner of the tables runs the command in a quiet moment. It may rewrite the table, and blocks all sessions meanwhile.',
		format('ALTER TABLE %s ALTER COLUMN %I TYPE %s USING %I::%s;', owner, name, type, name, type)
	FROM columns WHERE attname IS NOT NULL AND other_type
	UNION ALL
	SELECT number, 'warning', format('Column %s of %s accepts NULL', name, relation),
		'A row without this value may never be claimed.',
		'The owner of the tables runs the command in a quiet moment. It reads the whole table and blocks writers meanwhile.',
		format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL;', owner, name)
	FROM columns WHERE nullable
	UNION ALL
	SELECT number, 'problem', format('Column %s of %s has another default', name, relation),
		format('The default should be %s. Producers that do not set the column fail, or insert rows that the relay does not expect.', fallback),
		'The owner of the tables runs the command.', format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s;', owner, name, fallback)
	FROM columns WHERE attname IS NOT NULL AND other_default
	UNION ALL
	SELECT number, CASE WHEN present THEN 'warning' ELSE 'problem' END,
		format('Function %s %s', name, CASE WHEN present THEN 'differs from its definition' ELSE 'is missing' END),
		'Triggers, defaults and producers call it: they fail, or write rows that the relay does not expect.',
		'The owner of the tables runs the command.', regexp_replace(definition, '^CREATE ', 'CREATE OR REPLACE ') || ';'
	FROM functions WHERE NOT same
	UNION ALL
	SELECT number, 'warning', format('Constraint "%s" of %s is missing', name, relation),
		'Rows that the relay cannot handle are accepted.',
		CASE WHEN definition LIKE '%PRIMARY KEY%' THEN 'The owner of the tables runs the command in a quiet moment. It blocks all sessions while it reads the table.'
			ELSE 'The owner of the tables runs the command. It applies to new rows only.' END,
		format('ALTER %s %s ADD %s%s;', CASE kind WHEN 'rule' THEN 'DOMAIN' ELSE 'TABLE' END, owner, definition,
			CASE WHEN definition LIKE '%PRIMARY KEY%' THEN '' ELSE ' NOT VALID' END)
	FROM wanted
	WHERE kind = 'constraint' AND to_regclass(owner) IS NOT NULL AND NOT EXISTS (SELECT FROM pg_constraint
			WHERE conrelid = to_regclass(owner) AND conname = left(name, 63))
		OR kind = 'rule' AND to_regtype(owner) IS NOT NULL AND NOT EXISTS (SELECT FROM pg_constraint
			WHERE contypid = to_regtype(owner) AND conname = left(name, 63))
	UNION ALL
	SELECT number, 'problem', format('Table %s has no primary key', relation),
		'Duplicate rows are accepted, and statements of producers or relays fail.',
		'The owner of the tables runs the command in a quiet moment. It blocks all sessions while it reads the table.',
		format('ALTER TABLE %s ADD %s;', owner, definition)
	FROM wanted
	WHERE kind = 'primary key' AND to_regclass(owner) IS NOT NULL AND NOT EXISTS (SELECT FROM pg_constraint
		WHERE conrelid = to_regclass(owner) AND contype = 'p')
)
SELECT level, title, detail, advice, command, false AS fix FROM found ORDER BY number LIMIT 100
