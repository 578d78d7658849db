-- SPDX-License-Identifier: Apache-2.0
-- What producers, consumers, workers, relays and readers may do on PostgreSQL, and no more.
--
--     psql -v schema=public -v producer=shop -v consumer=rewards -v worker=ledger \
--         -v relay=dispatcher -v reader=support -f postgres-roles.sql postgres://owner@db1/shop
--
-- Run it as the owner of the tables, after each `postroom migrate`; again and again
-- is harmless. The roles must exist. One that is not named is left out, and the
-- schema is public unless said otherwise.

\set ON_ERROR_STOP on
\if :{?schema}
\else
	\set schema public
\endif

BEGIN;
SET LOCAL search_path = :"schema";

-- Producers enqueue: by INSERT, by postroom_enqueue(), by the library and the program. They
-- see ids and keys, without which a duplicate could not be told, and no payload. How a
-- message fares is not theirs to write: only the columns of a new one.
\if :{?producer}
GRANT USAGE ON SCHEMA :"schema" TO :"producer";
GRANT SELECT ON postroom_migrations TO :"producer";
GRANT INSERT (id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body,
	content_type, headers, next_attempt_at, created_at, updated_at, apart)
	ON postroom_outbox TO :"producer";
GRANT SELECT (id, namespace, topic, dedupe_key, status, xmax) ON postroom_outbox TO :"producer";
-- Keys outlive their messages.
GRANT SELECT, INSERT ON postroom_dedupe TO :"producer";
-- Many messages at once draw their seq before they are sorted by key.
GRANT USAGE ON SEQUENCE postroom_outbox_seq_seq TO :"producer";
-- Whether a relay sleeps and is to be woken.
GRANT SELECT ON SEQUENCE postroom_sleepers TO :"producer";
\endif

-- Consumers ask whether an event is new, and submit commands: by INSERT, by
-- postroom_inbox_once() and postroom_inbox_submit(), by the library and the program. They
-- see what there is and how it stands, and no payload.
\if :{?consumer}
GRANT USAGE ON SCHEMA :"schema" TO :"consumer";
GRANT SELECT ON postroom_migrations TO :"consumer";
GRANT INSERT (id, handler_name, status, payload, next_attempt_at, created_at, updated_at, processed_at)
	ON postroom_inbox TO :"consumer";
GRANT SELECT (id, handler_name, status) ON postroom_inbox TO :"consumer";
-- Whether a worker sleeps and is to be woken.
GRANT SELECT ON SEQUENCE postroom_inbox_sleepers TO :"consumer";
\endif

-- Workers are who runs `postroom consume`: they take events into the inbox and do its jobs, payloads
-- included. What an event says is not theirs to change. What their --sql does, or their command,
-- is to be granted besides.
\if :{?worker}
GRANT USAGE ON SCHEMA :"schema" TO :"worker";
GRANT SELECT ON postroom_migrations TO :"worker";
GRANT INSERT (id, handler_name, seq, topic, key, payload, body, content_type, headers, status, attempts,
	claims, next_attempt_at, last_attempt_at, last_error, created_at, updated_at, processed_at)
	ON postroom_inbox TO :"worker";
GRANT SELECT, DELETE ON postroom_inbox TO :"worker";
GRANT UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until, last_attempt_at,
	last_error, checkpoint, steps, updated_at, processed_at, apart) ON postroom_inbox TO :"worker";
GRANT USAGE ON SEQUENCE postroom_inbox_seq_seq TO :"worker";
GRANT SELECT, UPDATE ON SEQUENCE postroom_inbox_sleepers TO :"worker";
\endif

-- Relays claim, settle and purge; `postroom retry`, `postroom purge` and their kin of the inbox want the same. What a
-- message says is not theirs to change, nor to make one.
\if :{?relay}
GRANT USAGE ON SCHEMA :"schema" TO :"relay";
GRANT SELECT ON postroom_migrations TO :"relay";
GRANT SELECT, DELETE ON postroom_outbox TO :"relay";
GRANT UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until,
	last_attempt_at, last_error, updated_at, delivered_at, apart)
	ON postroom_outbox TO :"relay";
GRANT SELECT ON postroom_lanes, postroom_messages TO :"relay";
GRANT UPDATE (locked_by, locked_until, epoch, in_flight, floor) ON postroom_lanes TO :"relay";
GRANT SELECT, INSERT, DELETE ON postroom_history TO :"relay";
-- What is locked before it is deleted has to be a row that could be changed.
GRANT UPDATE (delivered_at) ON postroom_history TO :"relay";
GRANT SELECT, DELETE, UPDATE (created_at) ON postroom_dedupe TO :"relay";
GRANT SELECT, DELETE ON postroom_inbox TO :"relay";
GRANT UPDATE (seq, status, attempts, next_attempt_at, updated_at, apart) ON postroom_inbox TO :"relay";
GRANT USAGE ON SEQUENCE postroom_outbox_seq_seq, postroom_inbox_seq_seq TO :"relay";
-- Saying until when it sleeps.
GRANT SELECT, UPDATE ON SEQUENCE postroom_sleepers TO :"relay";
\endif

-- Readers list, show and count, payloads included.
\if :{?reader}
GRANT USAGE ON SCHEMA :"schema" TO :"reader";
GRANT SELECT ON postroom_migrations, postroom_outbox, postroom_messages, postroom_inbox TO :"reader";
\endif

COMMIT;
