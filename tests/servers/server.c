/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/server.h"

#include "contract/sink/sink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glob.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_PORT 11000
#define PORTS 20000

static struct sockaddr_in here(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((in_port_t)port),
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
}

/* False: another process of the tests has reserved it. It is held until this process ends. */
static bool reserve(int port)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
			   "postroom-test-port-%d", port);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);

	CHECK(fd >= 0);
	if (bind(fd, (struct sockaddr *)&address, size) == 0)
		return true;
	close(fd);
	return false;
}

/* Below the ports that the system gives to clients: none can take it before the server does. */
int server_free_port(void)
{
	static int tried;

	for (;;) {
		int port = FIRST_PORT + (getpid() * 13 + 101 * tried++) % PORTS;
		struct sockaddr_in address = here(port);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		bool is_free;

		CHECK(fd >= 0);
		is_free = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
		close(fd);
		if (is_free && reserve(port))
			return port;
	}
}

bool server_accepts(int port)
{
	struct sockaddr_in address = here(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool accepts;

	CHECK(fd >= 0);
	accepts = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return accepts;
}

void server_spawn(struct server *server, const char *const *argv)
{
	pid_t parent = getpid();
	int log;

	server->pid = fork();
	CHECK(server->pid >= 0);
	if (server->pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_DFL);
	log = open("server.log", O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log >= 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0)
		execvp(argv[0], (char *const *)argv);
	_exit(127);
}

static bool is_stopped(const char *task)
{
	char path[300], line[300] = "", *state;
	FILE *file;

	snprintf(path, sizeof(path), "%s/stat", task);
	file = fopen(path, "r");
	if (!file)
		return true; /* it has ended */
	state = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	return state && state[2] == 'T';
}

void server_stop(struct server *server)
{
	char pattern[100];
	bool still = false;

	CHECK(kill(server->pid, SIGSTOP) == 0);
	snprintf(pattern, sizeof(pattern), "/proc/%d/task/*", (int)server->pid);
	while (!still) {
		glob_t tasks;

		still = glob(pattern, 0, NULL, &tasks) == 0;
		for (size_t i = 0; still && i < tasks.gl_pathc; i++)
			still = is_stopped(tasks.gl_pathv[i]);
		globfree(&tasks);
	}
}

void server_kill(struct server *server)
{
	CHECK(kill(server->pid, SIGKILL) == 0);
	/* One that several tests share is another's child. */
	if (waitpid(server->pid, NULL, 0) < 0)
		wait_until_gone(server->pid);
	server->pid = 0;
}
