/* SPDX-License-Identifier: Apache-2.0 */
/* A web server in this process that keeps what it is asked, and answers as a test wants it to. */
#ifndef TESTS_CONTRACT_HTTP_SERVER_H
#define TESTS_CONTRACT_HTTP_SERVER_H

#include "contract/sink/sink.h"

#include <pthread.h>
#include <stdatomic.h>

/* A request as it came: "POST /path HTTP/1.1\r\n…". */
struct request {
	struct pr_buf text;
	size_t head_len;
	int fd;
};

/* Answers a request; false: the connection is closed. */
typedef bool (*answer_fn)(const struct request *request);

struct web {
	int fd;
	char base[40]; /* "http://127.0.0.1:PORT" */
	answer_fn answer;
	pthread_mutex_t lock;
	struct pr_buf seen; /* all requests, each with a 0x1e behind it */
	atomic_int connections, requests;
};

extern struct web web; /* of the running test */

/* Without an answer nothing is accepted; the kernel connects all the same. */
void start_server(answer_fn answer);

/* A header's value, or "". */
void header_of(const struct request *request, const char *name, char *out, size_t size);
/* False if the peer has closed. */
bool read_more(struct request *request);
void say(const struct request *request, const char *text);
bool answer_ok(const struct request *request);

/* Everything that has been asked for so far. The text stays the server's. */
const char *seen(void);

extern struct rig rig; /* of the running test */

/* Starts the server and opens the sink at a path of it, settings included. */
void begin(answer_fn answer, const char *rest);
postroom_delivery run_item(postroom_delivery item);
postroom_delivery run_one(answer_fn answer, const char *rest);
postroom_delivery item_with(const char *headers);

#endif
