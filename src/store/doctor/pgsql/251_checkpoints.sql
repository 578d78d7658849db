-- SPDX-License-Identifier: Apache-2.0
-- check: checkpoints
-- title: Checkpoints are timed, not forced by WAL volume
-- since: 170000
SELECT 'note' AS level, format('%s of %s checkpoints were requested', num_requested, num_requested + num_timed) AS title,
	'The WAL fills up before checkpoint_timeout. Full-page images after each checkpoint are most of the WAL of a queue.' AS detail,
	'A superuser runs the commands, with a value of two to four times the present one. The last one makes the server count from zero.' AS advice,
	format(E'ALTER SYSTEM SET max_wal_size = ''%sMB'';\nSELECT pg_reload_conf();\nSELECT pg_stat_reset_shared(''checkpointer'');', 2 * (SELECT setting::bigint FROM pg_settings WHERE name = 'max_wal_size')) AS command, false AS fix
FROM pg_stat_checkpointer WHERE num_requested > num_timed AND num_requested > 100
