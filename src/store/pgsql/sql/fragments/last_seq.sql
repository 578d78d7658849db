-- The highest seq that was drawn.
coalesce(pg_sequence_last_value('{schema}postroom_outbox_seq_seq'), 0)
