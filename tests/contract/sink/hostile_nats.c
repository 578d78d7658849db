/* SPDX-License-Identifier: Apache-2.0 */
/* nats: subjects and headers are lines of text. */
#include "contract/sink/hostile.h"
#include "contract/sink/server.h"
#include "servers/nats.h"

#include <stdlib.h>

#define SUBJECT_BYTES 3500

static void start(struct server *server)
{
	nats_kind.start(server);
}

static void put_url(const struct server *server, struct pr_buf *out)
{
	pr_buf_printf(out, "nats://%s:%s@" SERVER_HOST ":%d/", NATS_USER, NATS_PASSWORD_IN_URL,
		      server->port);
	pr_buf_puts(out, NATS_PREFIX "{topic}.n-{namespace}.k-{key}.t-{tenant}");
}

static void read_message(natsMsg *msg, struct pr_buf *record)
{
	const char **names = NULL;
	int count = 0;

	CHECK(natsMsgHeader_Keys(msg, &names, &count) == NATS_OK);
	for (int i = 0; i < count; i++) {
		const char **values = NULL;
		int value_count = 0;

		CHECK(natsMsgHeader_Values(msg, names[i], &values, &value_count) == NATS_OK);
		for (int j = 0; j < value_count; j++)
			record_put_header(record, names[i], strlen(names[i]), values[j],
					  strlen(values[j]));
		free(values);
	}
	free(names);
	record_puts(record, "target", natsMsg_GetSubject(msg));
	record_put(record, "content", natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg));
}

/* As a subscriber gets them: what the stream's API says of a subject, nats.c does not decode. */
static void read_all(const struct server *server, struct records *out)
{
	uint64_t count = nats_count(server, NATS_STREAM);
	natsSubscription *subscription = NULL;
	struct nats_desk desk;
	jsSubOptions options;

	CHECK(nats_reach(server, &desk));
	CHECK(jsSubOptions_Init(&options) == NATS_OK);
	options.Ordered = true;
	CHECK(js_SubscribeSync(&subscription, desk.js, NATS_PREFIX ">", NULL, &options, NULL) ==
	      NATS_OK);
	for (uint64_t i = 0; i < count; i++) {
		natsMsg *msg = NULL;

		CHECK(natsSubscription_NextMsg(&msg, subscription, AMPLE_MS) == NATS_OK);
		read_message(msg, record_add(out));
		natsMsg_Destroy(msg);
	}
	natsSubscription_Destroy(subscription);
	nats_leave(&desk);
}

/* A dot that would leave an empty token between itself and the next is escaped too. */
static void put_token(struct pr_buf *out, const char *value)
{
	for (const char *at = value; at && *at; at++) {
		bool lone = *at == '.' && (at == value || at[-1] == '.' || !at[1]);

		if (lone || (unsigned char)*at <= ' ' || strchr("\x7f*>$%", *at))
			pr_buf_printf(out, "%%%02X", (unsigned char)*at);
		else
			pr_buf_putc(out, *at);
	}
}

static bool is_carried(const char *name, const char *value)
{
	for (const char *at = name; *at; at++) {
		if (*at <= ' ' || *at >= 0x7f || *at == ':')
			return false;
	}
	return name[0] && is_printable(value);
}

static void put_text_header(struct pr_buf *record, const char *name, const char *value)
{
	record_put_header(record, name, strlen(name), value, strlen(value));
}

static bool expect(const postroom_delivery *item, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf target = { 0 };
	struct pr_span headers = { item->headers, strlen(item->headers) };
	const char *type = item->content_type + strspn(item->content_type, " \t");
	size_t len = strlen(type);

	pr_buf_puts(&target, NATS_PREFIX);
	put_token(&target, item->topic);
	pr_buf_puts(&target, ".n-");
	put_token(&target, item->ns);
	pr_buf_puts(&target, ".k-");
	put_token(&target, item->key);
	pr_buf_puts(&target, ".t-");
	put_token(&target, item->tenant_id);
	if (target.len > SUBJECT_BYTES || !is_printable(type) || !each_header(headers, is_carried))
		return false;
	while (len > 0 && strchr(" \t", type[len - 1]))
		len--;
	record_put(record, "target", target.data, target.len);
	put_text_header(record, "Nats-Msg-Id", percent_encode(item->id));
	put_text_header(record, "Idempotency-Key",
			percent_encode(item->dedupe_key ? item->dedupe_key : item->id));
	record_put_header(record, "Content-Type", strlen("Content-Type"), type, len);
	record_put_event(record, item, "ce-", true);
	record_put_headers(record, headers, true);
	record_put(record, "content", item->payload, item->payload_len);
	return true;
}

const struct hostile_kind hostile_nats = {
	.start = start,
	.put_url = put_url,
	.read = read_all,
	.expect = expect,
};
