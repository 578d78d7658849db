-- The size of the outbox, its dead rows as the server estimates them, and the time.
-- doing: collecting figures
SELECT pg_total_relation_size('{schema}postroom_outbox'),
	pg_stat_get_dead_tuples('{schema}postroom_outbox'::regclass),
	(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
