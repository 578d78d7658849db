/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "cli/ndjson.h"
#include "core/message.h"

#include <sys/mman.h>
#include <unistd.h>

#define MAX_PAYLOAD 4096

/* Reads every string to its end, so that the sanitizer sees one that has none. */
static void check_message(const postroom_message *message)
{
	const char *texts[] = { message->topic,	      message->ns,
				message->key,	      message->tenant_id,
				message->dedupe_key,  message->idempotency_key,
				message->headers,     message->correlation_id,
				message->content_type };
	struct pr_prepared prepared;
	struct pr_err err = { 0 };
	size_t sum = 0;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		sum += texts[i] ? strlen(texts[i]) : 0;
	for (size_t i = 0; i < message->body_len; i++)
		sum += ((const unsigned char *)message->body)[i];
	HOLDS(sum < SIZE_MAX);
	if (message->payload)
		HOLDS(pr_json_check(message->payload, message->payload_len, NULL));
	if (pr_message_check(message, MAX_PAYLOAD, &err) == POSTROOM_OK)
		pr_message_prepare(message, &prepared);
	else
		HOLDS(err.status == POSTROOM_INVALID && *err.text);
}

static void check_line(const char *line, size_t len)
{
	struct pr_arena arena = { 0 };
	struct pr_buf scratch = { 0 };
	postroom_message message;
	struct pr_err err = { 0 };

	if (ndjson_parse(line, len, &arena, &scratch, &message, &err) >= 0)
		check_message(&message);
	else
		HOLDS(strncmp(err.text, "column ", 7) == 0);
	pr_arena_release(&arena);
	pr_buf_release(&scratch);
}

/* One reader for all inputs: its buffer of several megabytes would be most of the work. */
static struct ndjson *reader(const char *text, size_t len)
{
	static struct ndjson in;

	if (!in.text) {
		int fd = memfd_create("ndjson", MFD_CLOEXEC);

		HOLDS(fd >= 0 && ndjson_open(&in, fd, MAX_PAYLOAD, NULL) >= 0);
	}
	HOLDS(ftruncate(in.fd, 0) == 0 && pwrite(in.fd, text, len, 0) == (ssize_t)len);
	HOLDS(lseek(in.fd, 0, SEEK_SET) == 0);
	in.at = in.end = 0;
	in.line = in.read = 0;
	in.eof = false;
	pr_arena_reset(&in.arena);
	return &in;
}

static void check_file(const char *text, size_t len)
{
	struct ndjson *in = reader(text, len);
	int64_t messages = 0;
	postroom_message message;
	struct pr_err err = { 0 };
	int result;

	while ((result = ndjson_next(in, &message, &err)) > NDJSON_END) {
		if (result == NDJSON_MESSAGE) {
			check_message(&message);
			messages++;
		}
		if (result == NDJSON_FULL || messages % 3 == 0)
			ndjson_recycle(in);
	}
	HOLDS(messages <= in->line && in->line <= (int64_t)len + 1);
	if (result < 0)
		HOLDS(strncmp(err.text, "line ", 5) == 0);
	else
		HOLDS(in->read == (int64_t)len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_line((const char *)data, size);
	check_file((const char *)data, size);
	return 0;
}
