-- SPDX-License-Identifier: Apache-2.0
-- check: pooler
-- title: The connection goes directly to the server
SELECT 'note' AS level, 'A pooler in transaction mode is between this program and the server' AS title,
	'Everything works, but a relay receives no notifications through it: messages wait for the next poll.' AS detail,
	'For less latency, the operator gives the relay a direct URL, or a shorter --poll-interval.' AS advice, NULL AS command, false AS fix
WHERE {pooled}
