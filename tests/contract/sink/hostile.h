/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with hostile attributes, and how their receivers read them. A record has one line
 * "NAME=VALUE" for each attribute; bytes that are not printable ASCII are written \xNN, so
 * that no value can look like another line.
 */
#ifndef TESTS_CONTRACT_SINK_HOSTILE_H
#define TESTS_CONTRACT_SINK_HOSTILE_H

#include "contract/sink/sink.h"
#include "servers/server.h"

#define RECORDS_MAX 400

struct records {
	struct pr_buf text[RECORDS_MAX];
	size_t count;
};

/* The next record, empty. */
struct pr_buf *record_add(struct records *records);
void record_put(struct pr_buf *record, const char *name, const void *value, size_t len);
void record_puts(struct pr_buf *record, const char *name, const char *value);
/* The same with "header " before the name. */
void record_put_header(struct pr_buf *record, const char *name, size_t name_len, const void *value,
		       size_t len);
/* One line for each header of a JSON object; trimmed: blanks around a value are left out. */
void record_put_headers(struct pr_buf *record, struct pr_span headers, bool trimmed);
/* The attributes of a CloudEvent, their names behind a prefix. encoded: as percent_encode() does. */
void record_put_event(struct pr_buf *record, const postroom_delivery *item, const char *prefix,
		      bool encoded);

/* As the HTTP binding of CloudEvents prescribes. */
const char *percent_encode(const char *text);
/* Each byte that is not a letter, a digit or in kept becomes the escape and two hex digits. */
const char *escape_bytes(const char *text, const char *kept, char escape);
bool is_printable(const char *text); /* no control character other than a tab */

/* A sink, its real receiver, and what that must get. */
struct hostile_kind {
	void (*start)(struct server *server);
	/* The URL, whose target is made of topic, namespace, key and tenant where there is one. */
	void (*put_url)(const struct server *server, struct pr_buf *out);
	void (*enter)(void); /* around each call into the sink; may be NULL */
	void (*leave)(void);
	/* All that the receiver has. */
	void (*read)(const struct server *server, struct records *out);
	/* The record of a message that the protocol can carry; false: it must be rejected. */
	bool (*expect)(const postroom_delivery *item, struct pr_buf *record);
};

extern const struct hostile_kind hostile_file, hostile_stdout, hostile_exec, hostile_http,
	hostile_structured, hostile_kafka, hostile_nats, hostile_redis, hostile_amqp;

/* The rule for every header, for protocols that have rules of their own. */
bool each_header(struct pr_span headers, bool (*good)(const char *name, const char *value));

#endif
