/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/amqp.h"

#include "contract/sink/server.h"
#include "contract/sink/sink.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAMS "/usr/lib/rabbitmq/bin/" /* those in the path ask for root */
#define FRAME_MAX 131072

struct ports {
	int amqp, tls, nodes, names;
};

static struct ports ports;

const char *amqp_own(void)
{
	static char name[32];

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	return name;
}

/* One for each run: its main process starts each test in a process of its own. */
const char *amqp_directory(void)
{
	static char path[300];
	const char *tmp = getenv("TMPDIR");

	if (!path[0])
		snprintf(path, sizeof(path), "%s/postroom-amqp.%d", tmp ? tmp : "/tmp",
			 (int)getppid());
	return path;
}

static const char *in_directory(const char *name)
{
	static char path[400];

	snprintf(path, sizeof(path), "%s/%s", amqp_directory(), name);
	return path;
}

int amqp_tls_port(void)
{
	return ports.tls;
}

static void set_path(const char *name, const char *file)
{
	CHECK(setenv(name, in_directory(file), 1) == 0);
}

static void set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", number);
	CHECK(setenv(name, text, 1) == 0);
}

/* Settings that the server and rabbitmqctl must agree on. */
static void set_environment(void)
{
	char node[64];

	snprintf(node, sizeof(node), "postroom%d@localhost", ports.nodes);
	setenv("RABBITMQ_NODENAME", node, 1);
	setenv("RABBITMQ_NODE_IP_ADDRESS", SERVER_HOST, 1);
	setenv("ERL_EPMD_ADDRESS", SERVER_HOST, 1);
	setenv("RABBITMQ_CONF_ENV_FILE", "/dev/null", 1);
	setenv("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 1:1 +sbwt none", 1);
	setenv("detached", "1", 1); /* no shell stays between us and the server */
	set_number("RABBITMQ_NODE_PORT", ports.amqp);
	set_number("RABBITMQ_DIST_PORT", ports.nodes);
	set_number("ERL_EPMD_PORT", ports.names);
	set_path("HOME", "");
	set_path("RABBITMQ_MNESIA_BASE", "db");
	set_path("RABBITMQ_LOG_BASE", "log");
	set_path("RABBITMQ_CONFIG_FILE", "rabbitmq");
	set_path("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins");
	set_path("RABBITMQ_FEATURE_FLAGS_FILE", "feature_flags");
	set_path("RABBITMQ_PID_FILE", "rabbitmq.pid");
}

static pid_t run(const char *program, const char *argument)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execlp(program, program, argument, (char *)NULL);
	_exit(127);
}

static void write_number(const char *path, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", number);
	write_file(path, text);
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Holds the server as long as the run lasts, unless a test kills it before. */
static void keep(pid_t suite)
{
	struct pollfd ends[2] = { { .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLIN } };
	pid_t names, server;
	int log;

	close_range(3, ~0U, 0);
	CHECK(chdir(amqp_directory()) == 0);
	log = open("server.log", O_RDWR | O_CREAT | O_APPEND, 0600);
	for (int fd = 0; fd <= 2; fd++)
		dup2(log, fd);
	set_environment();
	names = run("epmd", NULL);
	server = run(PROGRAMS "rabbitmq-server", NULL);
	ends[0].fd = (int)syscall(SYS_pidfd_open, suite, 0);
	ends[1].fd = (int)syscall(SYS_pidfd_open, server, 0);
	write_number("pid.new", server);
	rename("pid.new", "pid");
	while (poll(ends, 2, -1) <= 0)
		;
	end_process(server);
	end_process(names);
	unlink(in_directory("pid"));
	if (ends[0].revents || ends[0].fd < 0)
		execlp("rm", "rm", "-rf", amqp_directory(), (char *)NULL);
	_exit(0);
}

static void prepare_directory(void)
{
	PR_CLEANUP_BUF struct pr_buf conf = { 0 };
	PR_CLEANUP_BUF struct pr_buf command = { 0 };

	ports = (struct ports){ server_free_port(), server_free_port(), server_free_port(),
				server_free_port() };
	CHECK(mkdir(amqp_directory(), 0700) == 0);
	pr_buf_printf(
		&command,
		"cd %s && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
		"-addext subjectAltName=DNS:localhost -keyout key.pem -out ca.pem 2>openssl.log",
		amqp_directory());
	CHECK(system(pr_buf_text(&command)) == 0);
	pr_buf_printf(&conf,
		      "loopback_users = none\nlog.console = false\nmax_message_size = 16777216\n"
		      "listeners.ssl.1 = " SERVER_HOST ":%d\nssl_options.verify = verify_none\n",
		      ports.tls);
	pr_buf_printf(&conf, "ssl_options.certfile = %s/ca.pem\nssl_options.keyfile = %s/key.pem\n",
		      amqp_directory(), amqp_directory());
	write_file(in_directory("rabbitmq.conf"), pr_buf_text(&conf));
	write_file(in_directory("plugins"), "[].\n");
	pr_buf_reset(&conf);
	pr_buf_printf(&conf, "%d %d %d %d", ports.amqp, ports.tls, ports.nodes, ports.names);
	write_file(in_directory("ports"), pr_buf_text(&conf));
}

static void read_ports(void)
{
	FILE *file = fopen(in_directory("ports"), "r");

	CHECK(file != NULL);
	CHECK(fscanf(file, "%d %d %d %d", &ports.amqp, &ports.tls, &ports.nodes, &ports.names) ==
	      4);
	fclose(file);
}

static pid_t running(void)
{
	FILE *file = fopen(in_directory("pid"), "r");
	int pid = 0;

	if (!file)
		return 0;
	CHECK(fscanf(file, "%d", &pid) == 1);
	fclose(file);
	return pid;
}

/* The keeper has no parent in the tests: it outlives the test that started it. */
static void launch(void)
{
	pid_t suite = getppid(), child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		setsid();
		if (fork() == 0)
			keep(suite);
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	wait_until_exists(in_directory("pid"));
}

static amqp_connection_state_t connect_as_guest(const struct server *server)
{
	amqp_connection_state_t connection = amqp_new_connection();
	struct timeval limit = { .tv_sec = AMPLE_MS / 1000 };

	CHECK(connection != NULL);
	amqp_set_handshake_timeout(connection, &limit);
	if (amqp_socket_open(amqp_tcp_socket_new(connection), SERVER_HOST, server->port) == 0 &&
	    amqp_login(connection, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest")
			    .reply_type == AMQP_RESPONSE_NORMAL &&
	    amqp_channel_open(connection, 1))
		return connection;
	amqp_destroy_connection(connection);
	return NULL;
}

amqp_connection_state_t amqp_reach(const struct server *server)
{
	amqp_connection_state_t connection = connect_as_guest(server);

	CHECK(connection != NULL);
	return connection;
}

void amqp_end(amqp_connection_state_t connection)
{
	amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(connection);
}

static void check_reply(amqp_connection_state_t connection, const char *step)
{
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);

	CHECK_MSG(reply.reply_type == AMQP_RESPONSE_NORMAL, "%s", step);
}

void amqp_declare_exchange(const struct server *server, const char *name, const char *type)
{
	amqp_connection_state_t connection = amqp_reach(server);

	amqp_exchange_declare(connection, 1, amqp_cstring_bytes(name), amqp_cstring_bytes(type), 0,
			      1, 0, 0, amqp_empty_table);
	check_reply(connection, name);
	amqp_end(connection);
}

void amqp_declare_queue(const struct server *server, const char *name, int limit)
{
	amqp_connection_state_t connection = amqp_reach(server);
	amqp_table_entry_t entries[] = {
		{ .key = amqp_cstring_bytes("x-max-length"),
		  .value = { .kind = AMQP_FIELD_KIND_I32, .value = { .i32 = limit } } },
		{ .key = amqp_cstring_bytes("x-overflow"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8,
			     .value = { .bytes = amqp_cstring_bytes("reject-publish") } } },
	};
	amqp_table_t arguments = { .num_entries = limit >= 0 ? 2 : 0, .entries = entries };

	amqp_queue_declare(connection, 1, amqp_cstring_bytes(name), 0, 1, 0, 0, arguments);
	check_reply(connection, name);
	amqp_end(connection);
}

void amqp_bind(const struct server *server, const char *queue, const char *exchange,
	       const char *key)
{
	amqp_connection_state_t connection = amqp_reach(server);

	amqp_queue_bind(connection, 1, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
			amqp_cstring_bytes(key), amqp_empty_table);
	check_reply(connection, exchange);
	amqp_end(connection);
}

/* Messages without a binding go to the fallback, an exchange with the one queue. */
static void declare_own(const struct server *server)
{
	amqp_connection_state_t connection = amqp_reach(server);
	char fallback[64];
	amqp_table_entry_t entry = { .key = amqp_cstring_bytes("alternate-exchange") };
	amqp_table_t arguments = { .num_entries = 1, .entries = &entry };

	snprintf(fallback, sizeof(fallback), "%s-fallback", amqp_own());
	entry.value = (amqp_field_value_t){ .kind = AMQP_FIELD_KIND_UTF8,
					    .value = { .bytes = amqp_cstring_bytes(fallback) } };
	amqp_exchange_declare(connection, 1, amqp_cstring_bytes(amqp_own()),
			      amqp_cstring_bytes("direct"), 0, 1, 0, 0, arguments);
	check_reply(connection, "the exchange");
	amqp_end(connection);
	amqp_declare_exchange(server, fallback, "fanout");
	amqp_declare_queue(server, amqp_own(), -1);
	amqp_bind(server, amqp_own(), fallback, "");
}

void amqp_start(struct server *server)
{
	amqp_connection_state_t connection;
	pid_t pid;

	if (exists(in_directory("ports")))
		read_ports();
	else
		prepare_directory();
	server->port = ports.amqp;
	/* The keeper reaps a killed server first. */
	while ((pid = running()) != 0 && is_gone(pid))
		wait_a_moment();
	if (pid == 0)
		launch();
	server->pid = running();
	kill(server->pid, SIGCONT);
	while (!(connection = connect_as_guest(server))) {
		CHECK_MSG(!is_gone(server->pid), "rabbitmq-server does not run; see tools/install");
		wait_a_moment();
	}
	amqp_end(connection);
	declare_own(server);
}

void amqp_control(const char *words)
{
	PR_CLEANUP_BUF struct pr_buf command = { 0 };
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		set_environment();
		pr_buf_printf(&command, PROGRAMS "rabbitmqctl %s >control.log 2>&1", words);
		execlp("sh", "sh", "-c", pr_buf_text(&command), (char *)NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_MSG(status == 0, "rabbitmqctl %s", words);
}

/* Calls fn for each message of a queue until it says stop. They stay there. */
static void each_message(const struct server *server, const char *queue,
			 bool (*fn)(const amqp_message_t *message, const char *key, void *context),
			 void *context)
{
	amqp_connection_state_t connection = amqp_reach(server);
	bool go_on = true;

	while (go_on) {
		amqp_rpc_reply_t reply = amqp_basic_get(connection, 1, amqp_cstring_bytes(queue),
							false);
		const amqp_basic_get_ok_t *got = reply.reply.decoded;
		amqp_message_t message;
		char key[256];

		CHECK_MSG(reply.reply_type == AMQP_RESPONSE_NORMAL, "no queue %s", queue);
		if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
			break;
		snprintf(key, sizeof(key), "%.*s", (int)got->routing_key.len,
			 (const char *)got->routing_key.bytes);
		CHECK(amqp_read_message(connection, 1, &message, 0).reply_type ==
		      AMQP_RESPONSE_NORMAL);
		go_on = fn(&message, key, context);
		amqp_destroy_message(&message);
		amqp_maybe_release_buffers(connection);
	}
	amqp_end(connection);
}

static bool put_id(const amqp_message_t *message, const char *key, void *context)
{
	(void)key;
	pr_buf_append(context, message->properties.message_id.bytes,
		      message->properties.message_id.len);
	pr_buf_putc(context, '\n');
	return true;
}

static void ids(const struct server *server, struct pr_buf *out)
{
	each_message(server, amqp_own(), put_id, out);
}

struct question {
	const char *id;
	void (*fn)(const amqp_message_t *message, const char *routing_key, void *context);
	void *context;
	bool found;
};

static bool answer(const amqp_message_t *message, const char *key, void *context)
{
	struct question *question = context;
	amqp_bytes_t id = message->properties.message_id;

	if (id.len != strlen(question->id) || memcmp(id.bytes, question->id, id.len) != 0)
		return true;
	question->found = true;
	question->fn(message, key, question->context);
	return false;
}

bool amqp_find(const struct server *server, const char *queue, const char *id,
	       void (*fn)(const amqp_message_t *message, const char *routing_key, void *context),
	       void *context)
{
	struct question question = { .id = id, .fn = fn, .context = context };

	each_message(server, queue, answer, &question);
	return question.found;
}

int amqp_length(const struct server *server, const char *queue)
{
	amqp_connection_state_t connection = amqp_reach(server);
	const amqp_queue_declare_ok_t *ok = amqp_queue_declare(
		connection, 1, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
	int length;

	CHECK_MSG(ok != NULL, "no queue %s", queue);
	length = (int)ok->message_count;
	amqp_end(connection);
	return length;
}

static void put_body(const amqp_message_t *message, const char *key, void *context)
{
	(void)key;
	pr_buf_append(context, message->body.bytes, message->body.len);
}

static void content(const struct server *server, const char *id, struct pr_buf *out)
{
	CHECK_MSG(amqp_find(server, amqp_own(), id, put_body, out), "%s has not arrived", id);
}

struct wanted {
	const char *name;
	struct pr_buf *out;
};

static void put_header(const amqp_message_t *message, const char *key, void *context)
{
	const amqp_table_t *headers = &message->properties.headers;
	struct wanted *wanted = context;

	(void)key;
	for (int i = 0; i < headers->num_entries; i++) {
		const amqp_table_entry_t *entry = &headers->entries[i];

		if (entry->key.len == strlen(wanted->name) &&
		    memcmp(entry->key.bytes, wanted->name, entry->key.len) == 0)
			pr_buf_append(wanted->out, entry->value.value.bytes.bytes,
				      entry->value.value.bytes.len);
	}
}

static void header(const struct server *server, const char *id, const char *name,
		   struct pr_buf *out)
{
	CHECK_MSG(amqp_find(server, amqp_own(), id, put_header, &(struct wanted){ name, out }),
		  "%s has not arrived", id);
}

static void put_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "amqp://guest:guest@%s:%d/%%2F/%s", host, port, amqp_own());
}

static void put_intruder_url(struct pr_buf *out, const char *host, int port)
{
	pr_buf_printf(out, "amqp://guest:wrong-secret@%s:%d/%%2F/%s", host, port, amqp_own());
}

static void spoil(const struct server *server)
{
	char full[64];

	snprintf(full, sizeof(full), "%s-full", amqp_own());
	amqp_declare_queue(server, full, 0);
	amqp_bind(server, full, amqp_own(), "bad");
}

const struct server_kind amqp_kind = {
	.shared = true,
	.start = amqp_start,
	.put_url = put_url,
	.put_intruder_url = put_intruder_url,
	.ids = ids,
	.content = content,
	.header = header,
	.spoil = spoil,
};
