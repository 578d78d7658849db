/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every metric family: name (a counter's without _total), type, labels, help. The text of
 * /metrics is written from this table, and docs/metrics.md is compared with it.
 */
#ifndef PR_RELAY_FAMILIES_H
#define PR_RELAY_FAMILIES_H

enum pr_family_type { PR_COUNTER, PR_GAUGE, PR_HISTOGRAM };

/* clang-format off */
#define PR_FAMILIES(X) \
	X(BUILD_INFO, GAUGE, "postroom_build_info", "version, revision, compiler", \
	  "Always 1; the labels say what was built") \
	X(CLAIMED, COUNTER, "postroom_messages_claimed", "topic", \
	  "Messages claimed for delivery; each claim counts") \
	X(PUBLISHED, COUNTER, "postroom_messages_published", "topic, sink, outcome", \
	  "Settled attempts by outcome") \
	X(DEAD, COUNTER, "postroom_messages_dead", "topic, reason", \
	  "Messages that became dead letters") \
	X(REFUNDED, COUNTER, "postroom_attempts_refunded", "sink", \
	  "Attempts that were not counted because the sink was not reached") \
	X(LOST, COUNTER, "postroom_leases_lost", "", \
	  "Messages that could not be settled because another worker had claimed them") \
	X(DUPLICATES, COUNTER, "postroom_duplicates", "kind", \
	  "Events that were already in the inbox") \
	X(PURGED, COUNTER, "postroom_purged_messages", "status", \
	  "Rows deleted by retention") \
	X(ACTIONS, COUNTER, "postroom_operator_actions", "action", \
	  "Rows changed by operators through this process") \
	X(LATENCY, HISTOGRAM, "postroom_delivery_latency_seconds", "sink", \
	  "Time from enqueue, or the due time if later, to acknowledgement") \
	X(PUBLISH, HISTOGRAM, "postroom_publish_duration_seconds", "sink, outcome", \
	  "Time of one attempt at the sink") \
	X(STORE, HISTOGRAM, "postroom_store_operation_duration_seconds", "operation", \
	  "Time of one store operation") \
	X(BATCH, HISTOGRAM, "postroom_batch_messages", "", \
	  "Messages in a claimed batch") \
	X(STORE_ERRORS, COUNTER, "postroom_store_errors", "operation, kind", \
	  "Failed store operations") \
	X(STORE_CONNECTED, GAUGE, "postroom_store_connected", "", \
	  "1 while the database can be used") \
	X(BREAKER_OPEN, GAUGE, "postroom_sink_breaker_open", "sink", \
	  "1 while the circuit breaker of the sink is open") \
	X(BREAKER_OPENED, COUNTER, "postroom_sink_breaker_opened", "sink", \
	  "Times that the circuit breaker opened") \
	X(IN_FLIGHT, GAUGE, "postroom_sink_in_flight_messages", "sink", \
	  "Messages claimed and not yet settled") \
	X(IN_FLIGHT_BYTES, GAUGE, "postroom_sink_in_flight_bytes", "sink", \
	  "Payload and body bytes of the messages in flight") \
	X(LAST_DELIVERY, GAUGE, "postroom_sink_last_delivery_timestamp_seconds", "sink", \
	  "Unix time of the last delivery; 0 before the first") \
	X(WORKERS, GAUGE, "postroom_workers", "state", \
	  "Worker threads by state") \
	X(LANES, GAUGE, "postroom_lanes_owned", "", \
	  "Lanes that this process has leased") \
	X(WAKEUPS, COUNTER, "postroom_wakeups", "cause", \
	  "Why a waiting worker scanned for messages") \
	X(RELOAD_OK, GAUGE, "postroom_config_last_reload_successful", "", \
	  "1 if the last configuration reload succeeded") \
	X(RELOAD_AT, GAUGE, "postroom_config_last_reload_success_timestamp_seconds", "", \
	  "Unix time of the last successful load of the configuration") \
	X(BACKLOG, GAUGE, "postroom_outbox_backlog_messages", "", \
	  "Messages pending or in flight, counted up to the cap") \
	X(CAPPED, GAUGE, "postroom_outbox_backlog_capped", "", \
	  "1 if a count reached the cap of 100,000") \
	X(MESSAGES, GAUGE, "postroom_outbox_messages", "topic, status", \
	  "Messages by topic; of a sample if postroom_topics_capped is 1") \
	X(TOPICS_CAPPED, GAUGE, "postroom_topics_capped", "", \
	  "1 if the figures by topic and handler cover only a part of the messages") \
	X(FAILED_PENDING, GAUGE, "postroom_outbox_failed_pending_messages", "", \
	  "Messages that failed at least once and wait for a retry") \
	X(SCHEDULED, GAUGE, "postroom_outbox_scheduled_messages", "", \
	  "Messages that are due later and were never tried") \
	X(OUTBOX_DEAD, GAUGE, "postroom_outbox_dead_messages", "", \
	  "Dead letters in the outbox") \
	X(OLDEST, GAUGE, "postroom_outbox_oldest_age_seconds", "", \
	  "Age of the oldest due message; 0 if none is due") \
	X(TABLE_BYTES, GAUGE, "postroom_outbox_table_bytes", "", \
	  "Size of the outbox with its indexes") \
	X(DEAD_TUPLES, GAUGE, "postroom_outbox_dead_tuples", "", \
	  "Estimate of PostgreSQL for deleted rows not yet vacuumed") \
	X(REJECTED, GAUGE, "postroom_adopt_rejected_rows", "", \
	  "Rows of adopted tables that cannot be messages, counted up to the cap") \
	X(INBOX, GAUGE, "postroom_inbox_messages", "handler, status", \
	  "Messages in the inbox by handler; of a sample if postroom_topics_capped is 1") \
	X(INBOX_OLDEST, GAUGE, "postroom_inbox_oldest_age_seconds", "", \
	  "Age of the oldest due message in the inbox; 0 if none is due") \
	X(EVENTS, COUNTER, "postroom_handler_events", "handler, outcome", \
	  "Events of a consumer by outcome") \
	X(HANDLER, HISTOGRAM, "postroom_handler_duration_seconds", "handler", \
	  "Time of one run of the handler") \
	X(COLLECTED, GAUGE, "postroom_collector_last_success_timestamp_seconds", "", \
	  "Unix time when the store gauges were last collected; the start time before that") \
	X(HEALTH, GAUGE, "postroom_health", "component", \
	  "0 healthy, 1 degraded, 2 unhealthy") \
	X(REQUESTS, COUNTER, "postroom_http_requests", "route, code", \
	  "Requests to the admin server") \
	X(CPU, COUNTER, "process_cpu_seconds", "", \
	  "Total user and system CPU time spent in seconds") \
	X(RSS, GAUGE, "process_resident_memory_bytes", "", \
	  "Resident memory size in bytes") \
	X(OPEN_FDS, GAUGE, "process_open_fds", "", \
	  "Number of open file descriptors") \
	X(MAX_FDS, GAUGE, "process_max_fds", "", \
	  "Maximum number of open file descriptors") \
	X(START, GAUGE, "process_start_time_seconds", "", \
	  "Start time of the process since the Unix epoch in seconds")
/* clang-format on */

#define PR_FAMILY_ID(id, type, name, labels, help) PR_FAMILY_##id,
enum pr_family_id { PR_FAMILIES(PR_FAMILY_ID) PR_FAMILY_COUNT };
#undef PR_FAMILY_ID

#endif
