-- Leases that have not expired, by worker: table (0 outbox, 1 inbox), messages, lanes, the latest end.
-- doing: reading leases
SELECT locked_by, 0, count(*), 0, (extract(epoch FROM max(locked_until)) * 1000000)::bigint
FROM {schema}postroom_outbox
WHERE status = 'processing' AND locked_until > (SELECT clock_timestamp()) GROUP BY locked_by
UNION ALL
SELECT locked_by, 0, sum(cardinality(in_flight))::bigint, count(*),
	(extract(epoch FROM max(locked_until)) * 1000000)::bigint
FROM {schema}postroom_lanes WHERE locked_until > (SELECT clock_timestamp()) GROUP BY locked_by
UNION ALL
SELECT locked_by, 1, count(*), 0, (extract(epoch FROM max(locked_until)) * 1000000)::bigint
FROM {schema}postroom_inbox
WHERE status = 'active' AND locked_until > (SELECT clock_timestamp()) GROUP BY locked_by
ORDER BY 2, 1, 4
