/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/nats.h"

#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <signal.h>
#include <stdlib.h>

/* Of the window in which a message is known again: as short as the server takes it. */
#define SHORTEST_NS ((int64_t)100 * 1000 * 1000)

static const char *settings_now = "";
static const char *permissions_now = "{}";

static void write_configuration(int port)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	pr_buf_printf(&text,
		      "listen: \"" SERVER_HOST ":%d\"\n"
		      "max_payload: 8MB\n"
		      "jetstream { store_dir: \"jetstream\" }\n"
		      "authorization { timeout: 60, users: [\n"
		      "  { user: " NATS_USER
		      ", password: \"the-\\\\\\\"secret\", permissions: %s }\n"
		      "  { user: admin, password: admin }\n"
		      "] }\n%s\n",
		      port, permissions_now, settings_now);
	write_file("nats.conf", pr_buf_text(&text));
}

bool nats_reach(const struct server *server, struct nats_desk *desk)
{
	natsOptions *options = NULL;
	char url[64];
	natsStatus status;

	*desk = (struct nats_desk){ 0 };
	snprintf(url, sizeof(url), "nats://admin:admin@" SERVER_HOST ":%d", server->port);
	CHECK(natsOptions_Create(&options) == NATS_OK);
	CHECK(natsOptions_SetURL(options, url) == NATS_OK);
	CHECK(natsOptions_SetAllowReconnect(options, false) == NATS_OK);
	status = natsConnection_Connect(&desk->connection, options);
	natsOptions_Destroy(options);
	if (status != NATS_OK)
		return false;
	CHECK(natsConnection_JetStream(&desk->js, desk->connection, NULL) == NATS_OK);
	return true;
}

void nats_leave(struct nats_desk *desk)
{
	jsCtx_Destroy(desk->js);
	natsConnection_Destroy(desk->connection);
}

static bool answers(const struct server *server)
{
	struct nats_desk desk;
	jsAccountInfo *info = NULL;
	bool ready;

	if (!nats_reach(server, &desk))
		return false;
	ready = js_GetAccountInfo(&info, desk.js, NULL, NULL) == NATS_OK;
	jsAccountInfo_Destroy(info);
	nats_leave(&desk);
	return ready;
}

void nats_start(struct server *server, const char *settings)
{
	static const char *const argv[] = { "nats-server", "-c", "nats.conf", NULL };

	if (settings)
		settings_now = settings;
	write_configuration(server->port);
	server_spawn(server, argv);
	while (!answers(server)) {
		CHECK_MSG(!is_gone(server->pid), "nats-server does not run; see tools/install");
		wait_a_moment();
	}
}

static size_t count_reloads(void)
{
	PR_CLEANUP_BUF struct pr_buf log = { 0 };
	size_t count = 0;

	read_file("server.log", &log);
	for (const char *at = pr_buf_text(&log); (at = strstr(at, "Reloaded server config")); at++)
		count++;
	return count;
}

void nats_permit(const struct server *server, const char *permissions)
{
	size_t before = count_reloads();

	permissions_now = permissions;
	write_configuration(server->port);
	CHECK(kill(server->pid, SIGHUP) == 0);
	while (count_reloads() == before)
		wait_a_moment();
}

void nats_add_stream(const struct server *server, const char *name, const char *subject,
		     jsStreamConfig config)
{
	const char *subjects[] = { subject };
	struct nats_desk desk;
	jsErrCode code = 0;

	config.Name = name;
	config.Subjects = subjects;
	config.SubjectsLen = 1;
	CHECK(nats_reach(server, &desk));
	CHECK_MSG(js_AddStream(NULL, desk.js, &config, NULL, &code) == NATS_OK, "%s: %d %s", name,
		  (int)code, nats_GetLastError(NULL));
	nats_leave(&desk);
}

/* The contract uses the same ids repeatedly, for other messages. */
static void start(struct server *server)
{
	jsStreamConfig config;

	nats_start(server, NULL);
	jsStreamConfig_Init(&config);
	config.Duplicates = SHORTEST_NS;
	nats_add_stream(server, NATS_STREAM, NATS_PREFIX ">", config);
}

static void put_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "nats://%s:%s@%s:%d/" NATS_PREFIX "{topic}", NATS_USER,
		      NATS_PASSWORD_IN_URL, host, port);
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "nats://" NATS_USER ":wrong-secret@%s:%d/" NATS_PREFIX "{topic}", host,
		      port);
}

static void spoil(const struct server *server)
{
	nats_permit(server, NATS_DENY(NATS_PREFIX "bad"));
}

uint64_t nats_count(const struct server *server, const char *stream)
{
	struct nats_desk desk;
	jsStreamInfo *info = NULL;
	uint64_t count;

	CHECK(nats_reach(server, &desk));
	CHECK(js_GetStreamInfo(&info, desk.js, stream, NULL, NULL) == NATS_OK);
	count = info->State.Msgs;
	jsStreamInfo_Destroy(info);
	nats_leave(&desk);
	return count;
}

natsMsg *nats_last(const struct server *server, const char *subject)
{
	struct nats_desk desk;
	natsMsg *msg = NULL;

	CHECK(nats_reach(server, &desk));
	CHECK_MSG(js_GetLastMsg(&msg, desk.js, NATS_STREAM, subject, NULL, NULL) == NATS_OK,
		  "nothing has come to %s", subject);
	nats_leave(&desk);
	return msg;
}

/* Calls fn for each message of the stream until it says stop. */
static void each_message(const struct server *server, bool (*fn)(natsMsg *msg, void *context),
			 void *context)
{
	uint64_t last = nats_count(server, NATS_STREAM);
	struct nats_desk desk;
	bool go_on = true;

	CHECK(nats_reach(server, &desk));
	for (uint64_t seq = 1; seq <= last && go_on; seq++) {
		natsMsg *msg = NULL;

		CHECK(js_GetMsg(&msg, desk.js, NATS_STREAM, seq, NULL, NULL) == NATS_OK);
		go_on = fn(msg, context);
		natsMsg_Destroy(msg);
	}
	nats_leave(&desk);
}

static const char *id_of(natsMsg *msg)
{
	const char *id = NULL;

	CHECK(natsMsgHeader_Get(msg, "Nats-Msg-Id", &id) == NATS_OK);
	return id;
}

static bool put_id(natsMsg *msg, void *context)
{
	pr_buf_puts(context, id_of(msg));
	pr_buf_putc(context, '\n');
	return true;
}

static void ids(const struct server *server, struct pr_buf *out)
{
	each_message(server, put_id, out);
}

struct question {
	const char *id, *name; /* name NULL: the content */
	struct pr_buf *out;
	bool found;
};

static bool answer(natsMsg *msg, void *context)
{
	struct question *question = context;
	const char *value = NULL;

	if (strcmp(id_of(msg), question->id) != 0)
		return true;
	question->found = true;
	if (!question->name) {
		pr_buf_append(question->out, natsMsg_GetData(msg),
			      (size_t)natsMsg_GetDataLength(msg));
		return false;
	}
	CHECK_MSG(natsMsgHeader_Get(msg, question->name, &value) == NATS_OK, "%s has no header %s",
		  question->id, question->name);
	pr_buf_puts(question->out, value);
	return false;
}

static void header(const struct server *server, const char *id, const char *name,
		   struct pr_buf *out)
{
	struct question question = { .id = id, .name = name, .out = out };

	each_message(server, answer, &question);
	CHECK_MSG(question.found, "%s has not arrived", id);
}

static void content(const struct server *server, const char *id, struct pr_buf *out)
{
	header(server, id, NULL, out);
}

const struct server_kind nats_kind = {
	.printable = true,
	.start = start,
	.put_url = put_url,
	.put_intruder_url = put_intruder_url,
	.ids = ids,
	.content = content,
	.header = header,
	.spoil = spoil,
};
