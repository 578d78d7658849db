/* SPDX-License-Identifier: Apache-2.0 */
/* Records of Kafka: key, and pairs of header names and values up to an empty name; then the value. */
#include "fuzz_event.h"

#include "broker/kafka/event.h"

static size_t take_number(const uint8_t **data, size_t *size)
{
	size_t number = *size > 0 ? **data : 0;

	*data += *size > 0;
	*size -= *size > 0;
	return number < *size ? number : *size;
}

/* Values may hold any bytes: each has its length in front. */
static rd_kafka_headers_t *take_headers(const uint8_t **data, size_t *size)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(8);

	while (*size > 0 && **data) {
		char *name = fuzz_take_text(data, size);
		size_t len = take_number(data, size);

		rd_kafka_header_add(headers, name, -1, len > 0 ? *data : NULL, (ssize_t)len);
		*data += len;
		*size -= len;
		free(name);
	}
	return headers;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	rd_kafka_message_t message = { .partition = 3, .offset = 17 };
	struct pr_kafka_pen pen = { 0 };
	struct pr_events events = { 0 };
	rd_kafka_headers_t *headers;
	struct pr_err err;

	message.key_len = take_number(&data, &size);
	message.key = message.key_len > 0 ? (void *)(uintptr_t)data : NULL;
	data += message.key_len;
	size -= message.key_len;
	headers = take_headers(&data, &size);
	message.payload = size > 0 ? (void *)(uintptr_t)data : NULL;
	message.len = size;
	HOLDS(pr_kafka_add_event(&pen, "orders", &message, headers, &events, &err) >= 0);
	fuzz_check_events(&events);
	rd_kafka_headers_destroy(headers);
	pr_events_release(&events);
	pr_buf_release(&pen.headers);
	pr_buf_release(&pen.key);
	return 0;
}
