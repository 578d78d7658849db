-- For the statement behind this one in its transaction, which reads most of a table: the pages in their
-- order, each of them once. An index scan would jump between distant pages.
-- doing: choosing how to read a table
SELECT set_config('enable_indexscan', 'off', true), set_config('enable_bitmapscan', 'on', true)
