/* SPDX-License-Identifier: Apache-2.0 */
/* file:, stdout: and exec:, which carry every text: as JSON, or in the environment. */
#include "contract/sink/hostile.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static void put_file_url(const struct server *server, struct pr_buf *out)
{
	(void)server;
	pr_buf_puts(out, "file:out");
}

static void put_stdout_url(const struct server *server, struct pr_buf *out)
{
	(void)server;
	pr_buf_puts(out, "stdout:");
}

static int real_stdout = -1;

static void enter_stdout(void)
{
	int fd = open("out", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	fflush(stdout);
	real_stdout = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	CHECK(real_stdout >= 0 && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
	close(fd);
}

static void leave_stdout(void)
{
	CHECK(dup2(real_stdout, STDOUT_FILENO) == STDOUT_FILENO);
	close(real_stdout);
}

static void read_members(struct pr_span line, struct pr_buf *record)
{
	struct pr_json_members walk = pr_json_members(line);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		PR_CLEANUP_BUF struct pr_buf left = { 0 };
		PR_CLEANUP_BUF struct pr_buf right = { 0 };

		pr_json_decode(name, &left);
		pr_json_decode(value, &right);
		if (strcmp(pr_buf_text(&left), "headers") == 0)
			record_put_headers(record, value, false);
		else if (strcmp(pr_buf_text(&left), "payload") == 0)
			record_put(record, "content", value.data, value.len);
		else
			record_put(record, pr_buf_text(&left), right.data, right.len);
	}
}

static void read_lines(const struct server *server, struct records *out)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	struct pr_span line;

	(void)server;
	read_file("out", &text);
	for (size_t at = 0; next_line(&text, &at, &line);) {
		CHECK_MSG(pr_json_check(line.data, line.len, NULL), "%.*s", (int)line.len,
			  line.data);
		read_members(line, record_add(out));
	}
}

static void put_or_null(struct pr_buf *record, const char *name, const char *value)
{
	record_puts(record, name, value ? value : "null");
}

static bool expect_line(const postroom_delivery *item, struct pr_buf *record)
{
	record_puts(record, "id", item->id);
	record_puts(record, "namespace", item->ns);
	record_puts(record, "topic", item->topic);
	put_or_null(record, "key", item->key);
	put_or_null(record, "tenant_id", item->tenant_id);
	put_or_null(record, "dedupe_key", item->dedupe_key);
	put_or_null(record, "correlation_id", item->correlation_id);
	record_puts(record, "attempt", "1");
	record_puts(record, "created_at", "2023-11-14T22:13:20.123456Z");
	record_puts(record, "content_type", item->content_type);
	record_put_headers(record, (struct pr_span){ item->headers, strlen(item->headers) }, false);
	record_put(record, "content", item->payload, item->payload_len);
	return true;
}

/* A file for each message: the variables, and the content behind them. */
static void put_exec_url(const struct server *server, struct pr_buf *out)
{
	(void)server;
	pr_buf_puts(out, "exec:{ env -0 | grep -z ^POSTROOM_; printf content=; cat; } > got-$$");
}

static void read_variables(const char *path, struct pr_buf *record)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };
	size_t len;

	read_file(path, &text);
	for (size_t at = 0; at < text.len; at += len + 1) {
		const char *variable = text.data + at, *equals = strchr(variable, '=');
		char name[64];

		len = strnlen(variable, text.len - at);
		CHECK(equals != NULL);
		snprintf(name, sizeof(name), "%.*s", (int)(equals - variable), variable);
		record_put(record, name, equals + 1, len - (size_t)(equals + 1 - variable));
	}
}

static void read_runs(const struct server *server, struct records *out)
{
	DIR *directory = opendir(".");
	const struct dirent *entry;

	(void)server;
	CHECK(directory != NULL);
	CHECK(!exists("evil"));
	while ((entry = readdir(directory))) {
		if (strncmp(entry->d_name, "got-", 4) == 0)
			read_variables(entry->d_name, record_add(out));
	}
	closedir(directory);
}

static bool expect_run(const postroom_delivery *item, struct pr_buf *record)
{
	record_puts(record, "POSTROOM_ID", item->id);
	record_puts(record, "POSTROOM_NAMESPACE", item->ns);
	record_puts(record, "POSTROOM_TOPIC", item->topic);
	record_puts(record, "POSTROOM_KEY", item->key);
	record_puts(record, "POSTROOM_TENANT_ID", item->tenant_id);
	record_puts(record, "POSTROOM_DEDUPE_KEY", item->dedupe_key);
	record_puts(record, "POSTROOM_CORRELATION_ID", item->correlation_id);
	record_puts(record, "POSTROOM_ATTEMPT", "1");
	record_puts(record, "POSTROOM_CLAIM", "0");
	record_puts(record, "POSTROOM_HEADERS", item->headers);
	record_puts(record, "POSTROOM_CONTENT_TYPE", item->content_type);
	record_put(record, "content", item->payload, item->payload_len);
	return true;
}

const struct hostile_kind hostile_file = {
	.put_url = put_file_url,
	.read = read_lines,
	.expect = expect_line,
};

const struct hostile_kind hostile_stdout = {
	.put_url = put_stdout_url,
	.enter = enter_stdout,
	.leave = leave_stdout,
	.read = read_lines,
	.expect = expect_line,
};

const struct hostile_kind hostile_exec = {
	.put_url = put_exec_url,
	.read = read_runs,
	.expect = expect_run,
};
