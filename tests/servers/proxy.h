/* SPDX-License-Identifier: Apache-2.0 */
/* A wire with faults, between a sink and its server. It runs in a thread of its own. */
#ifndef TESTS_SERVERS_PROXY_H
#define TESTS_SERVERS_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum proxy_mode {
	PROXY_PASS,
	PROXY_BYTES, /* byte by byte, both ways */
	PROXY_DELAY, /* each piece a little later */
	PROXY_MUTE,  /* requests pass, answers are thrown away */
	PROXY_ONCE,  /* one more answer passes; then it is MUTE */
	PROXY_CUT,   /* requests pass, the first answer ends the connection instead */
	PROXY_STALL, /* nothing passes on the connections there are; new ones are like PASS */
};

#define PROXY_LINKS 32

struct proxy {
	int port; /* where it listens */
	int to;
	int listener;
	_Atomic enum proxy_mode mode;
	_Atomic size_t requested; /* bytes passed on to the server */
	_Atomic size_t muted;	  /* bytes of answers that were thrown away or cut off */
	_Atomic size_t ended;	  /* connections that are over */
	_Atomic bool ending;
	pthread_t thread;
	struct proxy_link {
		int client, server; /* -1: free */
		bool stalled;
	} links[PROXY_LINKS];
};

void proxy_start(struct proxy *proxy, int to);
void proxy_end(struct proxy *proxy); /* all its connections too */

#endif
