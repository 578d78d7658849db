-- The content of a message in pieces: part (0 headers, 1 payload, 2 body), its size, offset, piece,
-- total size.
-- doing: loading a message
-- result: binary
-- :id uuid
WITH content AS MATERIALIZED (
	SELECT convert_to(headers::text, 'UTF8') AS headers, convert_to(payload::text, 'UTF8') AS payload,
		body
	FROM {schema}postroom_outbox WHERE id = :id
)
SELECT number, octet_length(whole), start, substring(whole FROM start + 1 FOR 262144),
	octet_length(headers)::bigint + coalesce(octet_length(payload), 0) + coalesce(octet_length(body), 0)
FROM content
CROSS JOIN LATERAL (VALUES (0, headers), (1, payload), (2, body)) AS part(number, whole)
CROSS JOIN LATERAL generate_series(0, greatest(octet_length(whole) - 1, 0), 262144) AS start
WHERE whole IS NOT NULL
