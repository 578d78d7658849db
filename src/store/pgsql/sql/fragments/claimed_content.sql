-- The content of a row that an UPDATE of {table} AS m claims, and the size of what is left out. A dead
-- letter is returned without content, and so is a large message of fitting.
CASE WHEN status = 'dead' OR seq = ANY (ARRAY(SELECT seq FROM fitting WHERE {is_large}))
	THEN NULL ELSE headers END,
CASE WHEN status = 'dead' OR seq = ANY (ARRAY(SELECT seq FROM fitting WHERE {is_large}))
	THEN NULL ELSE payload END,
CASE WHEN status = 'dead' OR seq = ANY (ARRAY(SELECT seq FROM fitting WHERE {is_large}))
	THEN NULL ELSE body END,
CASE WHEN status = 'dead' OR seq = ANY (ARRAY(SELECT seq FROM fitting WHERE {is_large}))
	THEN coalesce((SELECT bytes FROM fitting AS f WHERE f.seq = m.seq LIMIT 1), 1)::bigint
	ELSE 0 END AS withheld, status = 'dead' AS dead_lettered
