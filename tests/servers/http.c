/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <string.h>

static void start(struct server *server)
{
	char port[16];
	const char *const argv[] = { "python3", "-B", TESTS_DIR "/servers/http.py", port, NULL };

	snprintf(port, sizeof(port), "%d", server->port);
	server_spawn(server, argv);
	while (!server_accepts(server->port)) {
		CHECK_MSG(!is_gone(server->pid), "python3 does not run servers/http.py");
		wait_a_moment();
	}
}

/* Fewer connections than the proxy has wires. */
static void put_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "http://me:the-secret@%s:%d/{topic}?connections=16", host, port);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "http://me:wrong-secret@%s:%d/{topic}", host, port);
}

static void spoil(const struct server *server)
{
	(void)server;
	write_file("spoiled", "");
}

static void ids(const struct server *server, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line;

	(void)server;
	read_file("arrived", &text);
	for (size_t at = 0; next_line(&text, &at, &line);) {
		pr_json_decode(member(line, "id"), out);
		pr_buf_putc(out, '\n');
	}
}

/* A member of what came with a message; its strings decoded. */
static void put_member(const char *id, const char *name, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line;

	read_file("arrived", &text);
	for (size_t at = 0; next_line(&text, &at, &line);) {
		PR_CLEANUP_BUF struct pr_buf found = { 0 };
		struct pr_span value = member(line, name);

		pr_json_decode(member(line, "id"), &found);
		if (strcmp(pr_buf_text(&found), id) != 0)
			continue;
		pr_buf_append(out, value.data, value.len);
		return;
	}
	test_fail(__FILE__, __LINE__, "%s has not arrived", id);
}

static void content(const struct server *server, const char *id, struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf raw = { 0 };

	(void)server;
	put_member(id, "body_base64", &raw);
	CHECK(pr_base64_decode((struct pr_span){ raw.data + 1, raw.len - 2 }, out));
}

/* Each byte of a header has become a character of its own on the way through the server. */
static void header(const struct server *server, const char *id, const char *name,
		   struct pr_buf *out)
{
	PR_CLEANUP_BUF struct pr_buf raw = { 0 };
	PR_CLEANUP_BUF struct pr_buf wide = { 0 };
	struct pr_span value;

	(void)server;
	put_member(id, "headers", &raw);
	value = member((struct pr_span){ raw.data, raw.len }, name);
	CHECK_MSG(value.data, "%s has no header %s", id, name);
	pr_json_decode(value, &wide);
	for (size_t i = 0; i < wide.len; i++) {
		unsigned char c = (unsigned char)wide.data[i];

		if (c >= 0x80)
			c = (unsigned char)(c << 6 | ((unsigned char)wide.data[++i] & 0x3f));
		pr_buf_putc(out, (char)c);
	}
}

const struct server_kind http_kind = {
	.printable = true,
	.start = start,
	.put_url = put_url,
	.put_intruder_url = put_intruder_url,
	.ids = ids,
	.content = content,
	.header = header,
	.spoil = spoil,
};
