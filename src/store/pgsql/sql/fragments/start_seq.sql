-- Where scans of lane l start: below its mark if a transaction has ended that the mark has passed.
CASE WHEN l.passed IS NULL OR l.passed <@ {open_transactions} THEN l.low_water_seq
	ELSE least(l.low_water_seq, (
		SELECT min(p.seq) FROM unnest(l.passed, l.passed_from) AS p(xid, seq)
		WHERE p.xid <> ALL ({open_transactions}::xid8[]))) END
