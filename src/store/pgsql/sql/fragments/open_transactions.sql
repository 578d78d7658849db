-- The transactions that are open in the statement's snapshot: xid8[], without subtransactions.
(SELECT ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot())))
