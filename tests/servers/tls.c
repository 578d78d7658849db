/* SPDX-License-Identifier: Apache-2.0 */
#include "servers/tls.h"

#include "contract/sink/sink.h"

#include <stdio.h>
#include <stdlib.h>

void tls_start(struct server *server, const char *host)
{
	char command[400], accept[40];
	const char *const argv[] = { "openssl", "s_server", "-accept", accept, "-cert", "ca.pem",
				     "-key",	"key.pem",  "-www",    "-msg", NULL };

	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
		 "-subj /CN=%s -addext subjectAltName=DNS:%s -keyout key.pem -out ca.pem "
		 "2>openssl.log",
		 host, host);
	CHECK_INT(system(command), 0);
	snprintf(accept, sizeof(accept), SERVER_HOST ":%d", server->port);
	server_spawn(server, argv);
	while (!server_accepts(server->port)) {
		CHECK_MSG(!is_gone(server->pid), "openssl s_server does not run");
		wait_a_moment();
	}
}

/* Received messages are marked by "<<<". */
bool tls_was_trusted(void)
{
	PR_CLEANUP_BUF struct pr_buf log = { 0 };
	size_t at = 0;
	struct pr_span line;

	read_file("server.log", &log);
	while (next_line(&log, &at, &line)) {
		if (memmem(line.data, line.len, "<<<", 3) &&
		    memmem(line.data, line.len, "Finished", strlen("Finished")))
			return true;
	}
	return false;
}
