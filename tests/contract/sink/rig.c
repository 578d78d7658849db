/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/sink/sink.h"

#include "base/time.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void rig_init(struct rig *rig)
{
	int fd = open("log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	/* As the program does. */
	signal(SIGPIPE, SIG_IGN);
	*rig = (struct rig){ .policy = { .max_attempts = 10, .max_error_length = 2000 } };
	CHECK(fd >= 0);
	pr_log_init(&rig->log, fd, PR_LOG_DEBUG, PR_LOG_TEXT);
	CHECK_INT(pr_stop_init(&rig->stop, &rig->err), POSTROOM_OK);
	rig->flight = (struct pr_flight){
		.arena = &rig->arena,
		.policy = &rig->policy,
		.timeout_ms = AMPLE_MS,
		.stop = &rig->stop,
		.log = &rig->log,
	};
}

void rig_open(struct rig *rig, const char *url)
{
	CHECK_MSG(pr_sink_open(url, &rig->sink, &rig->err) == POSTROOM_OK, "%s: %s", url,
		  rig->err.text);
}

void rig_release(struct rig *rig)
{
	pr_sink_close(rig->sink);
	pr_log_release(&rig->log);
	close(rig->log.fd);
	pr_stop_release(&rig->stop);
	pr_arena_release(&rig->arena);
}

postroom_delivery rig_item(struct rig *rig, int number, const char *key, const char *payload)
{
	const char *own = payload ? payload
				  : pr_arena_printf(&rig->arena, "{\"number\": %d}", number);

	return (postroom_delivery){
		.id = pr_arena_printf(&rig->arena, "id-%d", number),
		.ns = "default",
		.topic = "orders.created",
		.key = key ? pr_arena_strdup(&rig->arena, key) : NULL,
		.content_type = "application/json",
		.headers = "{}",
		.payload = own,
		.payload_len = strlen(own),
		.attempt = 1,
		.created_at_us = 1700000000123456,
		.retry_in_ms = -1,
	};
}

postroom_delivery *rig_items(struct rig *rig, size_t count)
{
	postroom_delivery *items = pr_arena_alloc(&rig->arena, (count + 1) * sizeof(*items));

	CHECK(items != NULL);
	for (size_t i = 0; i < count; i++)
		items[i] = rig_item(rig, (int)i, NULL, NULL);
	return items;
}

void rig_publish(struct rig *rig, postroom_delivery *items, size_t count)
{
	int status;

	rig->flight.begin_until_us = pr_mono_us() + AMPLE_MS * 1000;
	status = rig->sink->ops->publish(rig->sink, items, count, &rig->flight, &rig->err);
	CHECK_MSG(status == POSTROOM_OK, "publish: %s", rig->err.text);
	pr_log_flush(&rig->log);
}

void rig_check_outage(struct rig *rig, const char *says)
{
	postroom_delivery *items = rig_items(rig, 3);

	rig_publish(rig, items, 3);
	for (size_t i = 0; i < 3; i++) {
		CHECK_MSG(items[i].verdict == POSTROOM_UNREACHABLE, "%d: %s", items[i].verdict,
			  items[i].reason);
		CHECK_CONTAINS(items[i].reason, says);
	}
}

void read_file(const char *path, struct pr_buf *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	pr_buf_reset(out);
	pr_buf_puts(out, "");
	if (fd < 0)
		return;
	do {
		char *at = pr_buf_reserve(out, 65536);

		CHECK(at != NULL);
		n = read(fd, at, 65536);
		CHECK(n >= 0);
		at[n] = '\0';
		out->len += (size_t)n;
	} while (n > 0);
	close(fd);
}

void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	CHECK(file != NULL);
	fputs(text, file);
	CHECK(fclose(file) == 0);
}

bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

void wait_a_moment(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 5 * 1000 * 1000 }, NULL);
}

void *rig_stop_soon(void *context)
{
	struct rig *rig = context;

	for (int i = 0; i < 10; i++)
		wait_a_moment();
	pr_stop_request(&rig->stop, AMPLE_MS);
	return NULL;
}

void wait_until_exists(const char *path)
{
	while (!exists(path))
		wait_a_moment();
}

struct pr_span member(struct pr_span object, const char *name)
{
	struct pr_json_members walk = pr_json_members(object);
	struct pr_span found, value;

	while (pr_json_next(&walk, &found, &value)) {
		if (found.len == strlen(name) + 2 &&
		    memcmp(found.data + 1, name, strlen(name)) == 0)
			return value;
	}
	return (struct pr_span){ 0 };
}

bool next_line(const struct pr_buf *text, size_t *at, struct pr_span *ret)
{
	const char *start = text->data + *at, *end;

	if (*at >= text->len)
		return false;
	end = memchr(start, '\n', text->len - *at);
	if (!end)
		end = text->data + text->len;
	*ret = (struct pr_span){ .data = start, .len = (size_t)(end - start) };
	*at += ret->len + 1;
	return true;
}

size_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

bool has_children(void)
{
	return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

bool is_gone(int pid)
{
	char path[64], state = 'Z';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return true;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	fclose(file);
	return state == 'Z' || state == 'X';
}

void wait_until_gone(int pid)
{
	while (!is_gone(pid))
		wait_a_moment();
}
