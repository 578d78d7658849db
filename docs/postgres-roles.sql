-- SPDX-License-Identifier: Apache-2.0
-- Grants producers, consumers, workers, relays and readers the least they need on PostgreSQL.
--
--     psql -v schema=public -v producer=shop -v consumer=rewards -v worker=ledger -v sql_worker=mailer \
--         -v relay=dispatcher -v reader=support -f postgres-roles.sql postgres://owner@db1/shop
--
-- Run it as the owner of the tables, after each `postroom migrate`. It is
-- idempotent. The roles must exist. A role that you do not name is left out. The
-- default schema is public.

\set ON_ERROR_STOP on
\if :{?schema}
\else
	\set schema public
\endif

BEGIN;
SET LOCAL search_path = :"schema";

-- Producers enqueue: by INSERT, by postroom_enqueue(), by the library and the program. They
-- see ids and keys, to recognize duplicates, and no payload. They write the columns of a
-- new message, and none of its status. They may set the seq, because a bulk enqueue draws
-- the numbers before it sorts the messages by key.
\if :{?producer}
GRANT USAGE ON SCHEMA :"schema" TO :"producer";
REVOKE ALL ON postroom_outbox, postroom_dedupe FROM :"producer";
GRANT SELECT ON postroom_migrations TO :"producer";
GRANT INSERT (id, seq, namespace, topic, tenant_id, key, dedupe_key, correlation_id, payload, body,
	content_type, headers, next_attempt_at, created_at, updated_at)
	ON postroom_outbox TO :"producer";
GRANT SELECT (id, namespace, topic, dedupe_key, status, xmax) ON postroom_outbox TO :"producer";
-- Keys outlive their messages. Triggers run as the producer, so it must see which keys are
-- taken, and by which id, and may reserve a key. It cannot change or remove the key of a
-- message that was written.
GRANT SELECT (namespace, topic, dedupe_key, id, written), INSERT (namespace, topic, dedupe_key, id),
	UPDATE (id, written) ON postroom_dedupe TO :"producer";
GRANT USAGE ON SEQUENCE postroom_outbox_seq_seq TO :"producer";
-- The notify deadline: whether to wake a sleeping relay.
GRANT SELECT ON SEQUENCE postroom_notify_until TO :"producer";
\endif

-- Consumers ask whether an event is new, and submit commands: by INSERT, by
-- postroom_inbox_once() and postroom_inbox_submit(), by the library and the program. They
-- see rows and their status, and no payload.
\if :{?consumer}
GRANT USAGE ON SCHEMA :"schema" TO :"consumer";
GRANT SELECT ON postroom_migrations TO :"consumer";
GRANT INSERT (id, handler_name, status, payload, tenant_id, correlation_id, next_attempt_at, created_at, updated_at,
	processed_at)
	ON postroom_inbox TO :"consumer";
GRANT SELECT (id, handler_name, status) ON postroom_inbox TO :"consumer";
-- The notify deadline: whether to wake a sleeping worker.
GRANT SELECT ON SEQUENCE postroom_inbox_notify_until TO :"consumer";
\endif

-- Workers run `postroom consume`, or postroom_inbox_claim() and its kin: they insert events into the
-- inbox and process its jobs, payloads included. They cannot change the data of an event. Grant the privileges of their --sql, or of their
-- command, separately.
\if :{?worker}
GRANT USAGE ON SCHEMA :"schema" TO :"worker";
GRANT SELECT ON postroom_migrations TO :"worker";
GRANT INSERT (id, handler_name, seq, topic, key, tenant_id, correlation_id, payload, body, content_type, headers, status, attempts,
	claims, next_attempt_at, last_attempt_at, last_error, created_at, updated_at, processed_at)
	ON postroom_inbox TO :"worker";
GRANT SELECT, DELETE ON postroom_inbox TO :"worker";
GRANT UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until, last_attempt_at,
	last_error, checkpoint, steps, updated_at, processed_at, state) ON postroom_inbox TO :"worker";
GRANT USAGE ON SEQUENCE postroom_inbox_seq_seq TO :"worker";
GRANT SELECT, UPDATE ON SEQUENCE postroom_inbox_notify_until TO :"worker";
-- The positions of sources, and what was purged since.
GRANT SELECT, INSERT, UPDATE, DELETE ON postroom_sources TO :"worker";
GRANT SELECT, INSERT, UPDATE ON postroom_inbox_purged TO :"worker";
-- The history of failed attempts.
GRANT SELECT, INSERT, DELETE ON postroom_attempts TO :"worker";
GRANT EXECUTE ON FUNCTION postroom_inbox_claim, postroom_inbox_ack, postroom_inbox_nack,
	postroom_inbox_release, postroom_inbox_renew, postroom_worker_in_scope, postroom_worker_require,
	postroom_worker_check, postroom_worker_check_claim, postroom_worker_pattern,
	postroom_worker_backoff, postroom_worker_record, postroom_worker_unblock_jobs,
	postroom_worker_sweep_jobs, postroom_worker_hold_jobs, postroom_worker_choose_jobs,
	postroom_worker_lease_jobs, postroom_worker_reclaim_job, postroom_worker_leased_jobs,
	postroom_worker_return_jobs TO :"worker";
\endif

-- Workers in SQL claim and settle messages of the outbox by postroom_claim() and its kin. They cannot
-- change the data of a message, nor write one.
\if :{?sql_worker}
GRANT USAGE ON SCHEMA :"schema" TO :"sql_worker";
GRANT SELECT, DELETE ON postroom_outbox TO :"sql_worker";
GRANT UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until,
	last_attempt_at, last_error, updated_at, delivered_at, state)
	ON postroom_outbox TO :"sql_worker";
GRANT SELECT ON postroom_lanes TO :"sql_worker";
GRANT UPDATE (locked_by, locked_until, epoch, in_flight) ON postroom_lanes TO :"sql_worker";
GRANT INSERT ON postroom_history TO :"sql_worker";
GRANT SELECT, INSERT, DELETE ON postroom_attempts TO :"sql_worker";
GRANT USAGE ON SEQUENCE postroom_outbox_seq_seq TO :"sql_worker";
GRANT EXECUTE ON FUNCTION postroom_claim, postroom_ack, postroom_nack, postroom_release, postroom_renew,
	postroom_worker_in_scope, postroom_worker_require, postroom_worker_check,
	postroom_worker_check_claim, postroom_worker_pattern, postroom_worker_backoff,
	postroom_worker_record, postroom_worker_lanes, postroom_worker_take_over, postroom_worker_unblock,
	postroom_worker_sweep, postroom_worker_hold, postroom_worker_join_keys,
	postroom_worker_find_scheduled, postroom_worker_find_unkeyed, postroom_worker_ready,
	postroom_worker_find_in, postroom_worker_find_in_lanes, postroom_worker_paths,
	postroom_worker_choose, postroom_worker_lease, postroom_worker_reclaim, postroom_worker_leased,
	postroom_worker_return TO :"sql_worker";
\endif

-- Relays claim, settle and purge; `postroom retry`, `postroom purge` and their kin of the inbox want the same. Relays
-- cannot change the data of a message, nor write one.
\if :{?relay}
GRANT USAGE ON SCHEMA :"schema" TO :"relay";
GRANT SELECT ON postroom_migrations TO :"relay";
GRANT SELECT, DELETE ON postroom_outbox TO :"relay";
GRANT UPDATE (seq, status, attempts, claims, next_attempt_at, locked_by, locked_until,
	last_attempt_at, last_error, updated_at, delivered_at, state)
	ON postroom_outbox TO :"relay";
GRANT SELECT ON postroom_lanes, postroom_messages TO :"relay";
GRANT UPDATE (locked_by, locked_until, epoch, in_flight, low_water_seq, passed, passed_from) ON postroom_lanes TO :"relay";
GRANT SELECT, INSERT, DELETE ON postroom_history TO :"relay";
-- Locking a row before its deletion needs an UPDATE privilege on it.
GRANT UPDATE (delivered_at) ON postroom_history TO :"relay";
GRANT SELECT, DELETE, UPDATE (created_at) ON postroom_dedupe TO :"relay";
GRANT SELECT, DELETE ON postroom_inbox TO :"relay";
-- The inbox records what is deleted from it.
GRANT SELECT, INSERT, UPDATE ON postroom_inbox_purged TO :"relay";
-- The history of failed attempts.
GRANT SELECT, INSERT, DELETE ON postroom_attempts TO :"relay";
GRANT UPDATE (seq, status, attempts, next_attempt_at, updated_at, state) ON postroom_inbox TO :"relay";
GRANT USAGE ON SEQUENCE postroom_outbox_seq_seq, postroom_inbox_seq_seq TO :"relay";
-- Saying until when it sleeps.
GRANT SELECT, UPDATE ON SEQUENCE postroom_notify_until TO :"relay";
\endif

-- Readers list, show and count, payloads included.
\if :{?reader}
GRANT USAGE ON SCHEMA :"schema" TO :"reader";
GRANT SELECT ON postroom_migrations, postroom_outbox, postroom_messages, postroom_inbox,
	postroom_history, postroom_lanes, postroom_attempts TO :"reader";
\endif

COMMIT;
