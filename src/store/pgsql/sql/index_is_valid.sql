-- Whether an index of the outbox was created completely; no row if it does not exist.
-- doing: changing how messages are leased
-- :name text
SELECT indisvalid FROM pg_index WHERE indrelid = '{schema}postroom_outbox'::regclass
	AND indexrelid::regclass::text ~ ('(^|[.])' || :name || '$')
