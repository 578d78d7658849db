-- Settles rows with row leases. Dispositions are in the order of enum pr_disposition: 0 release, 1 done,
-- 2 retry, 3 dead.
-- doing: settling messages
-- result: binary
-- table: inbox
-- :rows bigint[]
-- :claims bigint[]
-- :dispositions int[]
-- :reasons text[]
-- :delays_ms bigint[]
-- :worker uuid
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
)
UPDATE {schema}{table} AS t SET
	status = (ARRAY['pending', 'completed', 'pending', 'dead'])[v.disposition + 1],
	attempts = CASE v.disposition WHEN 0 THEN greatest(attempts - 1, 0) ELSE attempts END,
	next_attempt_at = CASE v.disposition
		WHEN 2 THEN (SELECT at FROM now) + v.delay_ms * interval '1 millisecond'
		ELSE next_attempt_at END,
	last_error = CASE v.disposition WHEN 1 THEN NULL WHEN 0 THEN coalesce(v.reason, last_error)
		ELSE v.reason END,
	processed_at = CASE v.disposition WHEN 1 THEN (SELECT at FROM now) ELSE processed_at END,
	locked_by = NULL, locked_until = NULL, updated_at = (SELECT at FROM now)
FROM unnest(:rows, :claims, :dispositions, :reasons, :delays_ms)
	WITH ORDINALITY AS v(row, claims, disposition, reason, delay_ms, n)
{leased_rows}
