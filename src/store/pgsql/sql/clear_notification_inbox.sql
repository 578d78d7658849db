-- Clears the announcement of a sleep, unless another relay has announced a sleep since.
-- doing: waking up
-- :announced bigint
SELECT set_config('synchronous_commit', 'off', true), setval('{schema}postroom_inbox_notify_until', 1)
FROM {schema}postroom_inbox_notify_until WHERE last_value = :announced
