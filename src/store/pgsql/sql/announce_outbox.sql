-- Announces a sleep of at most :max_ms to producers, and returns the value of the announcement behind the
-- columns of fragments/next_due.sql. A sequence is visible at once, so the commit need not wait for the
-- disk.
-- doing: looking for work
-- table: outbox
-- :namespace text
-- :topic text
-- :tenant_id uuid
-- :scope_low_water_us bigint
-- :scope_low_water_seqs bigint[]
-- :max_ms bigint
SELECT {next_due},
	set_config('synchronous_commit', 'off', true),
	setval('{schema}postroom_notify_until', greatest(last_value + 1,
		(extract(epoch FROM clock_timestamp()) * 1000)::bigint + :max_ms))
FROM {schema}postroom_notify_until
