-- Whether message o was visible in :heads_snapshot, which read the heads; NULL: it is this one. The oldest
-- transaction that was open then and has ended since bounds the xmin.
coalesce(age(o.xmin) > (
	SELECT age(least(pg_snapshot_xmax(:heads_snapshot::pg_snapshot), (
		SELECT xid FROM pg_snapshot_xip(:heads_snapshot::pg_snapshot) AS xid
		WHERE xid <> ALL ({open_transactions}::xid8[]) ORDER BY xid LIMIT 1))::xid)), true)
