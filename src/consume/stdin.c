/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdin: one event per line.
 *
 * 1. A line is returned when it is complete; the last one may lack its line break.
 * 2. No read blocks: a stop and the deadline end every wait.
 * 3. A line that is not in our format is returned unchanged, never dropped.
 * 4. The first instance reads all lines; other instances are at the end immediately.
 * 5. There is nothing to acknowledge to: events that were read when we crash are lost, unless the
 *    input can be repeated.
 */
#include "base/json.h"
#include "base/time.h"
#include "broker/source.h"
#include "core/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)64 * 1024)
#define LINE_MAX_BYTES ((size_t)64 * 1024 * 1024)

/* There is one standard input for any number of readers. */
static atomic_flag taken = ATOMIC_FLAG_INIT;

struct stdin_source {
	struct pr_source source;
	struct pr_buf text; /* bytes that were read and not returned, from at on */
	size_t at;
	size_t searched; /* searched up to here for a line break */
	int64_t line;	 /* number of the last line returned */
	bool owner, ended;
	struct pr_buf scratch;
};

/* The members of a line that are used; data NULL: missing. */
struct members {
	struct pr_span id, topic, key, tenant_id, correlation_id, headers, content_type, payload,
		body;
};

static void find_members(struct pr_span line, struct members *ret)
{
	const struct {
		const char *name;
		struct pr_span *value;
	} known[] = { { "\"id\"", &ret->id },
		      { "\"topic\"", &ret->topic },
		      { "\"key\"", &ret->key },
		      { "\"tenant_id\"", &ret->tenant_id },
		      { "\"correlation_id\"", &ret->correlation_id },
		      { "\"headers\"", &ret->headers },
		      { "\"content_type\"", &ret->content_type },
		      { "\"payload\"", &ret->payload },
		      { "\"body_base64\"", &ret->body } };
	struct pr_json_members walk = pr_json_members(line);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
			if (pr_json_is(name, known[i].name))
				*known[i].value = value;
		}
	}
}

/* Decodes a string into *ret; NULL if it is missing or empty. False: no memory. */
static bool copy_text(struct stdin_source *in, struct pr_events *events, struct pr_span value,
		      const char **ret)
{
	*ret = NULL;
	if (!value.data || pr_json_kind(value) != '"' || value.len == 2)
		return true;
	pr_buf_reset(&in->scratch);
	pr_json_decode(value, &in->scratch);
	if (!in->scratch.failed)
		*ret = pr_arena_copy(&events->arena, in->scratch.data, in->scratch.len);
	return *ret;
}

/* Decodes into the scratch buffer; false if it is not base64. Some encoders write '/' as "\/". */
static bool decode_body(struct stdin_source *in, struct pr_events *events, struct pr_span value)
{
	const char *text = NULL;
	bool good = pr_json_kind(value) == '"' && copy_text(in, events, value, &text);

	pr_buf_reset(&in->scratch);
	return good &&
	       (!text || pr_base64_decode((struct pr_span){ text, strlen(text) }, &in->scratch));
}

/* The body, else the payload, else the whole line. */
static bool copy_content(struct stdin_source *in, struct pr_events *events, struct pr_event *event,
			 const struct members *members, struct pr_span line)
{
	struct pr_span content = members->payload.data ? members->payload : line;

	if (members->body.data && decode_body(in, events, members->body))
		content = (struct pr_span){ pr_buf_text(&in->scratch), in->scratch.len };
	if (in->scratch.failed)
		return false;
	event->body = pr_arena_copy(&events->arena, content.data, content.len);
	event->len = content.len;
	return event->body;
}

static bool read_line(struct stdin_source *in, struct pr_events *events, struct pr_span line)
{
	struct pr_event *event = pr_events_add(events);
	struct members members = { 0 };
	bool json;

	if (!event)
		return false;
	/* Not the line number: another input has the same numbers. */
	event->broker_position = pr_event_digest(&events->arena, &line, 1);
	json = pr_json_check(line.data, line.len, NULL);
	if (json && pr_json_kind(line) == '{')
		find_members(line, &members);
	/* Without content, the line is the content. Without an id, the settings may say where the
	 * id is. */
	if (!members.payload.data && !members.body.data &&
	    (!members.id.data || pr_json_kind(members.id) != '"' || members.id.len == 2))
		members = (struct members){ 0 };
	if (!event->broker_position || !copy_text(in, events, members.id, &event->id) ||
	    !copy_text(in, events, members.topic, &event->topic) ||
	    !copy_text(in, events, members.key, &event->key) ||
	    !copy_text(in, events, members.tenant_id, &event->tenant_id) ||
	    !copy_text(in, events, members.correlation_id, &event->correlation_id) ||
	    !copy_text(in, events, members.content_type, &event->content_type))
		return false;
	if (members.headers.data && pr_headers_valid(members.headers.data, members.headers.len)) {
		event->headers = pr_arena_copy(&events->arena, members.headers.data,
					       members.headers.len);
		if (!event->headers)
			return false;
	}
	if (!event->content_type && json)
		event->content_type = "application/json";
	return copy_content(in, events, event, &members, line);
}

static bool is_blank(struct pr_span line)
{
	for (size_t i = 0; i < line.len; i++) {
		if (!strchr(" \t\r", line.data[i]) || line.data[i] == '\0')
			return false;
	}
	return true;
}

/* Returns the next complete line, without consuming it. */
static bool find_line(struct stdin_source *in, struct pr_span *ret)
{
	const char *start = pr_buf_text(&in->text) + in->at, *newline;
	size_t left = in->text.len - in->at;

	if (left == 0)
		return false;
	newline = memchr(start + in->searched, '\n', left - in->searched);
	in->searched = newline ? (size_t)(newline - start) : left;
	*ret = (struct pr_span){ start, in->searched };
	return newline || in->ended;
}

/* Returns complete lines, up to the limits. */
static int add_lines(struct stdin_source *in, struct pr_events *events, size_t limit,
		     struct pr_err *err)
{
	size_t bytes = 0, first = events->count;
	struct pr_span line;

	while (events->count - first < limit && find_line(in, &line)) {
		bytes += line.len;
		if (events->count > first && bytes > in->source.bytes)
			break;
		in->line++;
		if (!is_blank(line) && !read_line(in, events, line))
			return pr_err_nomem(err);
		in->at += line.len;
		in->at += in->at < in->text.len;
		in->searched = 0;
	}
	return POSTROOM_OK;
}

static int recv_available(struct stdin_source *in, struct pr_err *err)
{
	char *room;
	ssize_t n;

	if (in->at > 0) {
		memmove(in->text.data, in->text.data + in->at, in->text.len - in->at);
		in->text.len -= in->at;
		in->at = 0;
	}
	room = pr_buf_reserve(&in->text, PIECE);
	if (!room && in->text.len + PIECE > LINE_MAX_BYTES)
		return pr_err_set(
			err, POSTROOM_SINK,
			"stdin: line %lld is longer than %zu MiB. The lines before it are in "
			"the inbox; remove it, and pass the other lines again",
			(long long)in->line + 1, LINE_MAX_BYTES / 1024 / 1024);
	if (!room)
		return pr_err_nomem(err);
	n = read(STDIN_FILENO, room, PIECE);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return pr_err_errno(err, POSTROOM_SINK, "stdin: line %lld cannot be read",
				    (long long)in->line + 1);
	in->ended = n == 0;
	in->text.len += n > 0 ? (size_t)n : 0;
	return POSTROOM_OK;
}

static int read_stdin(struct pr_source *source, struct pr_events *events, size_t limit,
		      const struct pr_flight *flight, struct pr_err *err)
{
	struct stdin_source *in = (struct stdin_source *)source;
	size_t first = events->count;

	for (;;) {
		struct pollfd fds[2] = { { .fd = -1 }, { .fd = STDIN_FILENO, .events = POLLIN } };
		int status = POSTROOM_OK;

		if (pr_stop_requested(flight->stop))
			return pr_err_set(err, POSTROOM_STOPPED, "stopped before a line was read");
		status = add_lines(in, events, limit, err);
		if (status < 0 || events->count > first)
			return status;
		if (in->ended)
			return pr_err_set(err, POSTROOM_NOT_FOUND, "stdin: end of input");
		pr_flight_poll(flight, fds, 2, flight->begin_until_us);
		if (fds[1].revents)
			status = recv_available(in, err);
		else if (pr_mono_us() >= flight->begin_until_us)
			return POSTROOM_OK;
		if (status < 0)
			return status;
	}
}

static int ack_stdin(struct pr_source *source, const struct pr_events *events,
		     const struct pr_flight *flight, struct pr_err *err)
{
	(void)source;
	(void)events;
	(void)flight;
	(void)err;
	return POSTROOM_OK;
}

static int open_stdin(struct pr_source *source, struct pr_err *err)
{
	struct stdin_source *in = (struct stdin_source *)source;
	int flags = fcntl(STDIN_FILENO, F_GETFL);

	if (source->url.path[0] || source->url.host[0])
		return pr_err_set(err, POSTROOM_SINK,
				  "stdin: takes nothing after the colon; to read a file write "
				  "--from - <FILE");
	if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY)
		return pr_err_set(err, POSTROOM_SINK,
				  "stdin: is closed and cannot be read; "
				  "redirect it, as in --from - <FILE");
	in->text.max = LINE_MAX_BYTES;
	in->ended = atomic_flag_test_and_set(&taken);
	in->owner = !in->ended;
	return POSTROOM_OK;
}

static void close_stdin(struct pr_source *source)
{
	struct stdin_source *in = (struct stdin_source *)source;

	pr_buf_release(&in->text);
	pr_buf_release(&in->scratch);
	if (in->owner)
		atomic_flag_clear(&taken);
}

static const char *const schemes[] = { "stdin", NULL };
static const struct pr_param params[] = { { .name = NULL } };

const struct pr_source_ops pr_source_stdin = {
	.schemes = schemes,
	.summary = "one JSON object per line on standard input, as stdout: and file: write them; "
		   "\"-\" "
		   "too",
	.example = "stdin:",
	.size = sizeof(struct stdin_source),
	.params = params,
	.open = open_stdin,
	.read = read_stdin,
	.ack = ack_stdin,
	.close = close_stdin,
};
