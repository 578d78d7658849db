/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: connections, requests and their answers, on libmicrohttpd.
 *
 * 1. Its limits are set before it listens: connections, connections per address, memory per
 *    connection, idle time, and the size of a body, of which no more is kept. Large answers that
 *    their clients do not read have a limit together.
 * 2. The thread that serves never waits: others do what needs the database or the doctor.
 * 3. A request uses the settings that were in force when it began.
 * 4. The thread that serves yields the processor to the workers: a flood of requests costs the
 *    relay little of its rate.
 */
#include "admin/server.h"

#include "base/time.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define IDLE_SECONDS 10
#define NICER 10 /* than the workers */
#define CONNECTION_BYTES ((size_t)32 * 1024)
#define EXPORT_BLOCK ((size_t)16 * 1024)
#define REFUSAL_EVERY_US 1000000
/* Of answers that their clients have not read yet. Those below LARGE_BYTES are not limited. */
#define UNREAD_BYTES ((size_t)64 * 1024 * 1024)
#define LARGE_BYTES ((size_t)1024 * 1024)

#define CSP_START "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define CSP_PAGE                                                                                   \
	CSP_START "; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "      \
		  "'self'"

static struct pr_admin_socket *socket_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* The target as it was sent: we decode it ourselves. */
static void *begin_request(void *context, const char *target, struct MHD_Connection *connection)
{
	struct pr_admin *admin = context;
	struct pr_admin_request *request = malloc(sizeof(*request));

	if (!request)
		return NULL;
	pr_request_init(request);
	request->admin = admin;
	request->connection = connection;
	request->socket = socket_of(connection);
	request->begun_us = pr_mono_us();
	request->target = strdup(target ? target : "");
	pthread_mutex_lock(&admin->lock);
	request->settings = pr_settings_ref(admin->settings);
	pthread_mutex_unlock(&admin->lock);
	return request;
}

static void end_request(void *context, struct MHD_Connection *connection, void **request_of,
			enum MHD_RequestTerminationCode code)
{
	struct pr_admin_request *request = *request_of;
	struct pr_admin *admin = context;

	(void)connection, (void)code;
	if (!request)
		return;
	pr_sockets_wait(&admin->sockets, request->socket);
	admin->unread -= request->unread;
	pr_export_free(request->export);
	pr_request_release(request);
	free(request);
	*request_of = NULL;
}

static size_t keep_escapes(void *context, struct MHD_Connection *connection, char *text)
{
	(void)context, (void)connection;
	return strlen(text);
}

/* At most one line per second: guessing tokens must not fill the disk. */
static void log_request(struct pr_admin *admin, const struct pr_admin_request *request)
{
	int64_t now_us = pr_mono_us();
	int code = request->answer.code;
	bool refused = (code == 401 || code == 403) &&
		       now_us - admin->refused_us > REFUSAL_EVERY_US;
	struct pr_log *log = &admin->log;

	if (refused)
		admin->refused_us = now_us;
	pr_log_box(log, refused ? PR_LOG_WARN : PR_LOG_DEBUG,
		   refused ? "ADMIN_REFUSED" : "ADMIN_REQUEST");
	pr_log_str(log, "method", request->route ? pr_admin_methods[request->route->method] : NULL);
	pr_log_str(log, "route", request->route ? request->route->path : NULL);
	pr_log_int(log, "status", code);
	pr_log_int(log, "duration_ms", (now_us - request->begun_us) / 1000);
	pr_log_end(log);
	pr_log_flush(log);
}

static void add_headers(struct MHD_Response *response, const struct pr_admin_answer *answer)
{
	MHD_add_response_header(response, "Content-Type", answer->type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
	MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	MHD_add_response_header(response, "Content-Security-Policy",
				answer->page ? CSP_PAGE : CSP_START);
	if (answer->code == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"postroom\"");
	if (answer->code == 405 && answer->allow)
		MHD_add_response_header(response, "Allow", answer->allow);
	if (answer->code == 503)
		MHD_add_response_header(response, "Retry-After", "1");
	if (answer->filename)
		MHD_add_response_header(response, "Content-Disposition", answer->filename);
}

static ssize_t read_export(void *context, uint64_t position, char *out, size_t size)
{
	struct pr_admin_request *request = context;
	struct pr_admin_sockets *sockets = &request->admin->sockets;
	ssize_t count = pr_export_read(request, out, size);

	(void)position;
	if (count == 0)
		pr_sockets_serve(sockets, request->socket);
	else
		pr_sockets_wait(sockets, request->socket);
	if (count == PR_EXPORT_END)
		return MHD_CONTENT_READER_END_OF_STREAM;
	return count == PR_EXPORT_FAILED ? MHD_CONTENT_READER_END_WITH_ERROR : count;
}

static struct MHD_Response *make_response(struct pr_admin_request *request)
{
	struct pr_admin_answer *answer = &request->answer;
	struct MHD_Response *response;

	if (request->export && answer->code == 200)
		return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EXPORT_BLOCK,
							 read_export, request, NULL);
	if (answer->fixed)
		return MHD_create_response_from_buffer(answer->fixed_len, (void *)answer->fixed,
						       MHD_RESPMEM_PERSISTENT);
	if (!answer->text.data)
		return MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	response = MHD_create_response_from_buffer(answer->text.len, answer->text.data,
						   MHD_RESPMEM_MUST_FREE);
	if (response)
		answer->text = (struct pr_buf){ 0 };
	return response;
}

/* The largest answer is sent if no other large one is. */
static void limit_unread(struct pr_admin *admin, struct pr_admin_request *request)
{
	struct pr_buf *text = &request->answer.text;

	if (text->cap <= LARGE_BYTES)
		return;
	if (admin->unread > 0 && admin->unread + text->cap > UNREAD_BYTES) {
		pr_buf_release(text);
		pr_request_refuse(request, 503, "busy",
				  "clients have not read other large answers yet; retry later");
		return;
	}
	request->unread = text->cap;
	admin->unread += text->cap;
}

/* MHD_NO closes the connection: there was no memory for an answer. */
static enum MHD_Result send_answer(struct pr_admin *admin, struct pr_admin_request *request)
{
	struct MHD_Response *response;
	enum MHD_Result result;

	pr_sockets_wait(&admin->sockets, request->socket);
	if (request->answer.text.failed)
		return MHD_NO;
	limit_unread(admin, request);
	log_request(admin, request);
	pr_metrics_count_request(admin->relay, request->route ? request->route->path : "other",
				 request->answer.code);
	response = make_response(request);
	if (!response)
		return MHD_NO;
	add_headers(response, &request->answer);
	result = MHD_queue_response(request->connection, (unsigned)request->answer.code, response);
	MHD_destroy_response(response);
	return result;
}

static const char *header(const struct pr_admin_request *request, const char *name)
{
	return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* Of a header that is sent twice only one value would be checked. */
static enum MHD_Result count_header(void *context, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	static const char *const single[] = { "Host", "Authorization", "Origin", "Sec-Fetch-Site",
					      "Content-Length" };
	unsigned *seen = context;

	(void)kind, (void)value;
	for (size_t i = 0; i < sizeof(single) / sizeof(*single); i++) {
		if (strcasecmp(single[i], name) == 0)
			seen[i]++;
	}
	return MHD_YES;
}

static bool check_headers(struct pr_admin_request *request)
{
	const struct pr_admin_headers headers = {
		.host = header(request, "Host"),
		.authorization = header(request, "Authorization"),
		.origin = header(request, "Origin"),
		.fetch_site = header(request, "Sec-Fetch-Site"),
	};
	const char *length = header(request, "Content-Length");
	unsigned seen[5] = { 0 };

	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, count_header, seen);
	for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
		if (seen[i] > 1)
			return pr_request_refuse(request, 400, "bad_header",
						 "a header is given twice");
	}
	/* A proxy before us might read another body than we do. */
	if (length && header(request, "Transfer-Encoding"))
		return pr_request_refuse(request, 400, "bad_header",
					 "Content-Length and Transfer-Encoding exclude each other");
	if (!pr_access_check(request, &headers))
		return false;
	if (length && (strlen(length) > 9 || strtoul(length, NULL, 10) > PR_ADMIN_DROP_MAX))
		return pr_request_refuse(request, 413, "body_too_large",
					 "the body has more than %zu bytes", PR_ADMIN_BODY_MAX);
	return true;
}

static enum MHD_Result begin(struct pr_admin *admin, struct pr_admin_request *request,
			     const char *method)
{
	bool fine = request->target && pr_request_read_target(request, method);

	if (!request->target)
		return MHD_NO;
	request->step = PR_STEP_BODY;
	/* Without a token, the answers for unknown and known paths are the same. */
	if (!request->route) {
		static const struct pr_admin_route any = { .method = PR_METHOD_GET,
							   .path = "other" };
		struct pr_admin_answer answer = request->answer;

		request->route = &any;
		request->answer = (struct pr_admin_answer){ 0 };
		if (check_headers(request)) {
			pr_buf_release(&request->answer.text);
			request->answer = answer;
		} else {
			pr_buf_release(&answer.text);
		}
		request->route = NULL;
		return send_answer(admin, request);
	}
	if (fine || request->answer.code == 0) {
		if (check_headers(request))
			return MHD_YES;
	} else {
		struct pr_admin_answer answer = request->answer;

		request->answer = (struct pr_admin_answer){ 0 };
		if (check_headers(request))
			request->answer = answer;
		else
			pr_buf_release(&answer.text);
	}
	return send_answer(admin, request);
}

/* The thread that answers; NULL: the one that serves. */
static struct pr_admin_queue *queue_of(struct pr_admin *admin, const struct pr_admin_route *route)
{
	if (route->flags & PR_ROUTE_DOCTOR)
		return &admin->doctor.queue;
	return route->flags & PR_ROUTE_DATABASE ? &admin->database.queue : NULL;
}

/* Probes that no query delays. */
static bool answer_at_once(struct pr_admin_request *request)
{
	if (request->route->handle == pr_api_readyz)
		return pr_readyz_answer(request);
	return request->route->handle == pr_api_healthz && pr_healthz_answer(request);
}

static enum MHD_Result finish(struct pr_admin *admin, struct pr_admin_request *request)
{
	struct pr_admin_queue *queue = queue_of(admin, request->route);

	if (!pr_request_read_body(request))
		return send_answer(admin, request);
	if (answer_at_once(request))
		return send_answer(admin, request);
	if (queue) {
		pr_sockets_serve(&admin->sockets, request->socket);
		if (pr_queue_submit(queue, request))
			return MHD_YES;
		pr_request_refuse(request, 503, "stopping", "the server is stopping");
	} else {
		request->route->handle(request);
	}
	return send_answer(admin, request);
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *size, void **request_of)
{
	struct pr_admin_request *request = *request_of;
	struct pr_admin *admin = context;

	(void)connection, (void)url, (void)version;
	if (!request)
		return MHD_NO;
	if (request->step == PR_STEP_BEGIN)
		return begin(admin, request, method);
	if (request->step == PR_STEP_DONE)
		return send_answer(admin, request);
	if (request->step == PR_STEP_QUEUED)
		return MHD_YES;
	if (*size > 0) {
		request->received += *size;
		/* Without a length, in chunks: it could go on forever. */
		if (request->received > PR_ADMIN_DROP_MAX)
			return MHD_NO;
		pr_buf_append(&request->body, data, *size);
		*size = 0;
		return MHD_YES;
	}
	return finish(admin, request);
}

/* Of this thread alone, which libmicrohttpd has started. */
static void lower_priority(void)
{
	int nice = getpriority(PRIO_PROCESS, (id_t)gettid());

	setpriority(PRIO_PROCESS, (id_t)gettid(), nice + NICER);
}

static void note_connection(void *context, struct MHD_Connection *connection, void **socket,
			    enum MHD_ConnectionNotificationCode code)
{
	struct pr_admin *admin = context;
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *client = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

	if (!admin->lowered) {
		lower_priority();
		admin->lowered = true;
	}
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		*socket = fd ? pr_sockets_add(&admin->sockets, fd->connect_fd,
					      client ? client->client_addr : NULL)
			     : NULL;
	else if (*socket)
		pr_sockets_remove(&admin->sockets, *socket);
}

static struct MHD_Daemon *start_daemon(struct pr_admin *admin, int fd)
{
	return MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
		NULL, handle, admin, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)PR_ADMIN_SOCKETS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT,
		1, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_URI_LOG_CALLBACK,
		begin_request, admin, MHD_OPTION_NOTIFY_COMPLETED, end_request, admin,
		MHD_OPTION_NOTIFY_CONNECTION, note_connection, admin, MHD_OPTION_END);
}

static void log_listening(struct pr_admin *admin, int fd)
{
	char address[80];

	pr_listen_name(fd, address, sizeof(address));
	pr_log_box(&admin->log, PR_LOG_INFO, "ADMIN_LISTENING");
	pr_log_str(&admin->log, "address", address);
	pr_log_end(&admin->log);
	pr_log_flush(&admin->log);
}

static int start(struct pr_admin *admin, int fd, struct pr_err *err)
{
	log_listening(admin, fd);
	admin->daemon = start_daemon(admin, fd);
	if (admin->daemon)
		return POSTROOM_OK;
	close(fd);
	return pr_err_set(err, POSTROOM_NOMEM, "admin: cannot start the server: no resources left");
}

static void init_log(struct pr_log *log, const struct pr_relay_config *host)
{
	pr_log_init(log, STDERR_FILENO, host->log_level, host->log_format);
	log->box = host->table ? host->table->box : log->box;
}

static struct pr_admin *new_admin(const struct pr_relay_config *host, struct pr_relay *relay)
{
	struct pr_admin *admin = calloc(1, sizeof(*admin));

	if (!admin)
		return NULL;
	admin->relay = relay;
	pthread_mutex_init(&admin->lock, NULL);
	pr_sockets_init(&admin->sockets);
	pr_queue_init(&admin->database.queue, pr_database_serve);
	pr_queue_init(&admin->doctor.queue, pr_api_doctor);
	init_log(&admin->log, host);
	init_log(&admin->database.log, host);
	return admin;
}

int pr_admin_open(const struct pr_admin_config *config, const struct pr_relay_config *host,
		  struct pr_relay *relay, struct pr_admin **ret, struct pr_err *err)
{
	struct pr_admin *admin;
	struct pr_gauges gauges;
	int64_t age_ms;
	int status = pr_admin_config_check(config, err);
	int fd = -1;

	if (status >= 0)
		status = pr_listen_open(config->listen, &fd, err);
	if (status < 0)
		return status;
	admin = new_admin(host, relay);
	if (admin)
		admin->settings = pr_settings_new(config);
	if (!admin || !admin->settings) {
		close(fd);
		pr_admin_close(admin);
		return pr_err_nomem(err);
	}
	admin->doctor.run = config->doctor;
	admin->doctor.context = config->doctor_context;
	status = pr_database_open(admin, host, err);
	if (status >= 0)
		status = pr_queue_start(&admin->doctor.queue, "admin doctor", err);
	if (status >= 0)
		status = start(admin, fd, err);
	else
		close(fd);
	if (status < 0) {
		pr_admin_close(admin);
		return status;
	}
	pr_metrics_set_health(relay, pr_health_levels, admin);
	/* Asking begins the collection, so that the first probe knows something. */
	pr_relay_gauges(relay, &gauges, &age_ms);
	*ret = admin;
	return POSTROOM_OK;
}

int pr_admin_reload(struct pr_admin *admin, const struct pr_admin_config *config,
		    struct pr_err *err)
{
	struct pr_admin_settings *settings, *old = admin->settings;
	struct pr_admin_config kept = *config;
	int status;

	kept.listen = old->listen;
	status = pr_admin_config_check(&kept, err);
	if (status < 0)
		return status;
	settings = pr_settings_new(&kept);
	if (!settings)
		return pr_err_nomem(err);
	pthread_mutex_lock(&admin->lock);
	admin->settings = settings;
	pthread_mutex_unlock(&admin->lock);
	pr_settings_unref(old);
	return POSTROOM_OK;
}

const char *pr_admin_address(const struct pr_admin *admin)
{
	return admin->settings->listen;
}

static void stop_daemon(struct pr_admin *admin)
{
	int fd = MHD_quiesce_daemon(admin->daemon); /* it accepts no more connections */

	pr_sockets_end(&admin->sockets);
	MHD_stop_daemon(admin->daemon);
	if (fd >= 0)
		close(fd);
}

void pr_admin_close(struct pr_admin *admin)
{
	if (!admin)
		return;
	pr_metrics_set_health(admin->relay, NULL, NULL);
	pr_database_end(&admin->database);
	pr_doctor_end(&admin->doctor);
	if (admin->daemon)
		stop_daemon(admin);
	pr_database_close(&admin->database);
	pr_doctor_release(&admin->doctor);
	pr_sockets_release(&admin->sockets);
	pr_settings_unref(admin->settings);
	pr_log_release(&admin->log);
	pr_buf_release(&admin->openapi);
	pthread_mutex_destroy(&admin->lock);
	free(admin);
}
