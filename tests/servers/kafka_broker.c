/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Kafka broker for tests: librdkafka's mock cluster, in processes of its own.
 *
 *	kafka-broker keep	holds the log, on a port of its own choice; takes orders
 *				at the socket "control", a line each
 *	kafka-broker front PORT	is what clients talk to: killed and begun again, it has
 *				all that was acknowledged, as a broker on a disk has
 *
  * Brokers report their own address. The front replaces it by the contents of the file
  * "advertised", so that a client stays on the connection that it came by.
 */
#include <arpa/inet.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define HOST "127.0.0.1"
#define PUSH_MAX 100
#define SECOND_NS 1000000000

static atomic_int speed = 1;
static _Atomic int64_t hurried_ns; /* since when it is that */

/*
 * The library's clock, instead of libc's. The mock cluster waits three seconds for the members
 * of a new group, and has no setting for that.
 */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *now)
{
	long status = syscall(SYS_clock_gettime, id, now);
	int64_t ns;

	if (status != 0 || id != CLOCK_MONOTONIC || speed == 1)
		return (int)status;
	ns = now->tv_sec * (int64_t)SECOND_NS + now->tv_nsec;
	ns = hurried_ns + (ns - hurried_ns) * speed;
	now->tv_sec = ns / SECOND_NS;
	now->tv_nsec = ns % SECOND_NS;
	return 0;
}

static void hurry(int times)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	hurried_ns = now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec;
	speed = times;
}

/* A number in a file; 0 if there is none. */
static int read_number(const char *path)
{
	FILE *file = fopen(path, "r");
	int number = 0;

	if (file && fscanf(file, "%d", &number) != 1)
		number = 0;
	if (file)
		fclose(file);
	return number;
}

static void write_number(const char *path, int number)
{
	FILE *file = fopen("number.new", "w");

	if (!file || fprintf(file, "%d\n", number) < 0 || fclose(file) != 0 ||
	    rename("number.new", path) != 0) {
		perror(path);
		exit(1);
	}
}

static bool obey(rd_kafka_mock_cluster_t *cluster, const char *line)
{
	char topic[300];
	int code, count, api;

	if (sscanf(line, "topic %299s %d", topic, &code) == 2) {
		rd_kafka_mock_topic_set_error(cluster, topic, (rd_kafka_resp_err_t)code);
		return true;
	}
	if (sscanf(line, "partitions %299s %d", topic, &count) == 2)
		return rd_kafka_mock_topic_create(cluster, topic, count, 1) ==
		       RD_KAFKA_RESP_ERR_NO_ERROR;
	if (sscanf(line, "push %d %d %d", &api, &code, &count) == 3 && count <= PUSH_MAX) {
		for (int i = 0; i < count; i++)
			rd_kafka_mock_push_request_errors(cluster, (int16_t)api, 1,
							  (rd_kafka_resp_err_t)code);
		return true;
	}
	if (sscanf(line, "hurry %d", &count) == 1 && speed == 1) {
		hurry(count);
		return true;
	}
	return false;
}

static int keep(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "control" };
	rd_kafka_mock_cluster_t *cluster;
	char why[200];
	rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_PRODUCER, NULL, why, sizeof(why));
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cluster = handle ? rd_kafka_mock_cluster_new(handle, 1) : NULL;
	if (!cluster || bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(listener, 8) != 0) {
		perror("kafka-broker");
		return 1;
	}
	write_number("kept", atoi(strchr(rd_kafka_mock_cluster_bootstraps(cluster), ':') + 1));
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		char line[400] = "";

		if (fd < 0)
			return 1;
		if (read(fd, line, sizeof(line) - 1) > 0 && obey(cluster, line) &&
		    write(fd, "ok", 2) != 2)
			perror("control");
		close(fd);
	}
}

struct link {
	int client, keeper;
};

static bool read_all(int fd, void *data, size_t len)
{
	return recv(fd, data, len, MSG_WAITALL) == (ssize_t)len;
}

static bool write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		data += sent;
		len -= (size_t)sent;
	}
	return true;
}

static void hang_up(const struct link *link)
{
	shutdown(link->client, SHUT_RDWR);
	shutdown(link->keeper, SHUT_RDWR);
}

static void *pass_requests(void *context)
{
	const struct link *link = context;
	char data[65536];
	ssize_t len;

	while ((len = recv(link->client, data, sizeof(data), 0)) > 0) {
		if (!write_all(link->keeper, data, (size_t)len))
			break;
	}
	hang_up(link);
	return NULL;
}

/* An address in an answer: the host's letters and behind them the port, in any version. */
static void readdress(char *frame, size_t len)
{
	char pattern[sizeof(HOST) + 4];
	uint32_t kept = htonl((uint32_t)read_number("kept"));
	uint32_t advertised = htonl((uint32_t)read_number("advertised"));
	size_t size = strlen(HOST) + sizeof(kept);
	char *at = frame;

	memcpy(pattern, HOST, strlen(HOST));
	memcpy(pattern + strlen(HOST), &kept, sizeof(kept));
	while (advertised && (at = memmem(at, len - (size_t)(at - frame), pattern, size))) {
		memcpy(at + strlen(HOST), &advertised, sizeof(advertised));
		at += size;
	}
}

static void pass_answers(const struct link *link)
{
	uint32_t head;
	char *frame = NULL;

	while (read_all(link->keeper, &head, sizeof(head))) {
		size_t len = ntohl(head);
		char *room = realloc(frame, len + sizeof(head));

		if (!room)
			break;
		frame = room;
		memcpy(frame, &head, sizeof(head));
		if (!read_all(link->keeper, frame + sizeof(head), len))
			break;
		readdress(frame, len + sizeof(head));
		if (!write_all(link->client, frame, len + sizeof(head)))
			break;
	}
	free(frame);
}

static void *serve(void *context)
{
	struct link *link = context;
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((in_port_t)read_number("kept")),
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	pthread_t requests;
	int yes = 1;

	link->keeper = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(link->keeper, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(link->client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(link->keeper, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    pthread_create(&requests, NULL, pass_requests, link) == 0) {
		pass_answers(link);
		hang_up(link);
		pthread_join(requests, NULL);
	}
	close(link->keeper);
	close(link->client);
	free(link);
	return NULL;
}

static int front(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((in_port_t)port),
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(listener, 64) != 0) {
		perror("kafka-broker");
		return 1;
	}
	for (;;) {
		struct link *link = calloc(1, sizeof(*link));
		pthread_t thread;

		if (!link)
			return 1;
		link->client = accept(listener, NULL, NULL);
		if (link->client < 0 || pthread_create(&thread, NULL, serve, link) != 0)
			return 1;
		pthread_detach(thread);
	}
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && strcmp(argv[1], "keep") == 0)
		return keep();
	if (argc == 3 && strcmp(argv[1], "front") == 0)
		return front(atoi(argv[2]));
	fprintf(stderr, "usage: kafka-broker keep | front PORT\n");
	return 2;
}
