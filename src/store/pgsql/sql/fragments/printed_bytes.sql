-- The size of a message when printed: 1e131071 takes 16 bytes in a jsonb. A large payload is not printed
-- only to be measured. With :max_bytes = 0 nothing is printed.
coalesce(CASE WHEN :max_bytes = 0 OR pg_column_size(payload) > 262144 THEN pg_column_size(payload)
	ELSE octet_length(payload::text) END, 0)::bigint
+ coalesce(octet_length(body), 0)
+ CASE WHEN :max_bytes = 0 THEN pg_column_size(headers) ELSE octet_length(headers::text) END
