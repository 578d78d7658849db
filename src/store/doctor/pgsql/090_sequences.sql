-- SPDX-License-Identifier: Apache-2.0
-- check: sequences
-- title: The sequences have headroom
-- needs: tables
-- A trigger refuses a seq above 10^15.
WITH used AS (
	SELECT sequencename, last_value, least(max_value, 1000000000000000) AS highest,
		replace(sequencename::text, '_seq_seq', '') AS relation
	FROM pg_sequences
	WHERE quote_ident(schemaname) || '.' = '{schema}' AND sequencename IN ('postroom_outbox_seq_seq', 'postroom_inbox_seq_seq')
)
SELECT CASE WHEN last_value > 0.9 * highest THEN 'problem' ELSE 'warning' END AS level,
	format('Sequence %s is used up to %s %%', sequencename, round(100.0 * last_value / highest)) AS title,
	'When it ends, producers can no longer insert messages.' AS detail,
	'Stop producers and relays. The owner of the tables then runs the commands, which continue after the highest seq in use.' AS advice,
	format(E'SELECT setval(''{schema}%I'', (SELECT coalesce(max(seq), 0) + 1 FROM {schema}%I), false);\n'
		'UPDATE {schema}postroom_lanes SET low_water_seq = 0;', sequencename, relation) AS command, false AS fix
FROM used WHERE last_value > 0.75 * highest
UNION ALL
SELECT 'skipped', format('Sequence %s cannot be read', sequencename),
	'The role may not read the sequence, so its headroom is unknown.',
	'The owner of the tables runs the command.',
	format('GRANT SELECT ON SEQUENCE {schema}%I TO %I;', sequencename, current_user), false
FROM used WHERE NOT has_sequence_privilege('{schema}' || quote_ident(sequencename), 'SELECT, USAGE')
