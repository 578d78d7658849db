-- Extends row leases.
-- doing: renewing leases
-- result: binary
-- table: outbox
-- :rows uuid[]
-- :claims bigint[]
-- :lease_ms bigint
-- :worker uuid
WITH now AS MATERIALIZED (
	SELECT clock_timestamp() AS at
)
UPDATE {schema}{table} AS t
SET locked_until = (SELECT at FROM now) + :lease_ms * interval '1 millisecond',
	updated_at = (SELECT at FROM now)
FROM unnest(:rows, :claims) WITH ORDINALITY AS v(row, claims, n)
{leased_rows}
