-- SPDX-License-Identifier: Apache-2.0
-- check: checksums
-- title: Data pages have checksums
SELECT 'note' AS level, 'Data pages have no checksums' AS title,
	'If the disk returns a damaged page, the server does not notice: messages may be lost or altered without an error.' AS detail,
	'The administrator stops the server and runs the command as its user. It reads all data files once.' AS advice,
	format('pg_checksums --enable --pgdata=%s', coalesce(quote_literal((SELECT setting FROM pg_settings WHERE name = 'data_directory')), '"$PGDATA"')) AS command,
	false AS fix
WHERE current_setting('data_checksums') = 'off'
