/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of amqp:, with a real server that is slow, stalled or suspended. */
#include "contract/sink/amqp.h"

#include "base/time.h"
#include "broker/amqp/connection.h"
#include "servers/amqp.h"
#include "servers/proxy.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONG ((size_t)17 * 1024 * 1024) /* more than the way to the server takes */
#define SHORT_MS 200

static struct proxy proxy;

TEST(K8_memory_alarm_of_the_server_is_an_outage_and_stops_sending)
{
	postroom_delivery *item;
	int before, sent = 1;

	start();
	open_own("");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	amqp_control("set_vm_memory_high_watermark absolute 1000");
	/* The server notices a moment after the command has ended. */
	while ((item = publish_one("a"))->verdict == POSTROOM_DELIVERED)
		sent++;
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "takes no messages now: low on memory");
	for (int i = 0; i < 5; i++)
		rig_check_outage(&amqp_rig, "low on memory");
	amqp_control("set_vm_memory_high_watermark 0.8");
	while (publish_one("b")->verdict != POSTROOM_DELIVERED)
		wait_a_moment();
	/* Messages that the server had not read when it stalled are delivered in the end, once. */
	before = amqp_length(&server, amqp_own());
	CHECK_INT(before, sent + 2);
	rig_release(&amqp_rig);
}

/* On the way to the server there is little room from now on. */
static void narrow_the_way(void)
{
	static const int size = 32 * 1024;
	int narrowed = 0;

	for (int fd = 3; fd < 100; fd++) {
		struct sockaddr_in peer = { 0 };
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
		    ntohs(peer.sin_port) == server.port)
			narrowed += setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0;
	}
	CHECK_INT(narrowed, 1);
}

static void *wake_later(void *context)
{
	for (int i = 0; i < 60; i++) /* meanwhile the way to it fills up */
		wait_a_moment();
	CHECK(kill(server.pid, SIGCONT) == 0);
	return context;
}

TEST(K8_unsent_messages_are_not_sent_after_the_server_blocks)
{
	enum { COUNT = 300, SIZE = 10000 };
	char *body = calloc(SIZE, 1);
	int64_t patience_us = pr_mono_us() + AMPLE_MS * 1000;
	int unreachable = 0;
	postroom_delivery *items;
	pthread_t waker;

	start();
	open_own("?heartbeat=0s");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	narrow_the_way();
	amqp_control("set_vm_memory_high_watermark absolute 1000");
	server_stop(&server);
	items = rig_items(&amqp_rig, COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		items[i].body = body;
		items[i].body_len = SIZE;
	}
	CHECK(pthread_create(&waker, NULL, wake_later, NULL) == 0);
	rig_publish(&amqp_rig, items, COUNT);
	pthread_join(waker, NULL);
	amqp_control("set_vm_memory_high_watermark 0.8");
	for (size_t i = 0; i < COUNT; i++) {
		CHECK(items[i].verdict == POSTROOM_UNREACHABLE ||
		      items[i].verdict == POSTROOM_UNTRIED);
		unreachable += items[i].verdict == POSTROOM_UNREACHABLE;
	}
	CHECK(unreachable > 0 && unreachable < COUNT);
	/* All that may arrive do so by themselves, save one that had left in part. */
	while (amqp_length(&server, amqp_own()) < 1 + unreachable - 1) {
		CHECK_MSG(pr_mono_us() < patience_us, "%d of %d",
			  amqp_length(&server, amqp_own()) - 1, unreachable);
		wait_a_moment();
	}
	while (publish_one("b")->verdict != POSTROOM_DELIVERED)
		wait_a_moment();
	CHECK_INT(amqp_length(&server, amqp_own()), 1 + unreachable + 1);
	rig_release(&amqp_rig);
	free(body);
}

TEST(K8_connection_closed_while_idle_uses_no_attempt)
{
	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	while (proxy.ended == 0) /* the server misses our heartbeats */
		wait_a_moment();
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	open_own("?heartbeat=0s");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	amqp_control("close_all_connections maintenance");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	CHECK_INT(amqp_length(&server, amqp_own()), 4);
	proxy_end(&proxy);
	rig_release(&amqp_rig);
}

TEST(K8_missing_heartbeats_end_the_connection_before_the_deadline)
{
	postroom_delivery *item;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	proxy.mode = PROXY_MUTE;
	item = publish_one("a");
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "silent for two heartbeats");
	proxy_end(&proxy);
	rig_release(&amqp_rig);
}

/* how: suspend, and the queue confirms nothing any more; resume. */
static void treat_queue(const char *how)
{
	PR_CLEANUP_BUF struct pr_buf words = { 0 };

	pr_buf_printf(&words,
		      "eval '{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
		      "<<\"%s\">>)), ok = sys:%s(amqqueue:get_pid(Q)).'",
		      amqp_own(), how);
	amqp_control(pr_buf_text(&words));
}

static void *resume_after_heartbeats(void *context)
{
	size_t before = proxy.requested;

	while (proxy.requested == before)
		wait_a_moment();
	before = proxy.requested;
	/* Each is 8 bytes long, and there are two in a second. */
	while (proxy.requested < before + 8 * 8 && proxy.ended == 0)
		wait_a_moment();
	treat_queue("resume");
	return context;
}

TEST(K8_heartbeats_keep_the_connection_during_a_slow_confirmation)
{
	postroom_delivery *item;
	pthread_t other;

	start();
	amqp_declare_queue(&server, own("-other"), -1);
	amqp_bind(&server, own("-other"), amqp_own(), "other");
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s?heartbeat=1s", amqp_own()));
	treat_queue("suspend");
	CHECK_INT(publish_one("other")->verdict, POSTROOM_DELIVERED);
	CHECK(pthread_create(&other, NULL, resume_after_heartbeats, NULL) == 0);
	item = publish_one("a");
	pthread_join(other, NULL);
	CHECK_MSG(item->verdict == POSTROOM_DELIVERED, "%d: %s", item->verdict, item->reason);
	CHECK_INT(proxy.ended, 0);
	proxy_end(&proxy);
	rig_release(&amqp_rig);
}

TEST(K8_unconfirmed_message_fails_alone)
{
	postroom_delivery *items;

	start();
	amqp_declare_queue(&server, own("-other"), -1);
	amqp_bind(&server, own("-other"), amqp_own(), "other");
	open_own("?heartbeat=3s");
	treat_queue("suspend");
	items = rig_items(&amqp_rig, 3);
	items[0].topic = items[2].topic = "other";
	amqp_rig.flight.timeout_ms = 10000; /* several heartbeats of the server */
	rig_publish(&amqp_rig, items, 3);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	CHECK_MSG(items[1].verdict == POSTROOM_FAILED, "%d: %s", items[1].verdict, items[1].reason);
	CHECK_INT(items[2].verdict, POSTROOM_DELIVERED);
	treat_queue("resume");
	rig_release(&amqp_rig);
}

static void *stop_in_mid_batch(void *context)
{
	size_t before = proxy.requested;

	while (proxy.requested < before + 10000)
		wait_a_moment();
	server_stop(&server);
	return context;
}

TEST(K8_server_that_hangs_during_a_batch_is_an_outage_and_uses_no_attempt)
{
	enum { COUNT = 400 };
	static const char *const keys[] = { "a", "b", "c", "d" };
	size_t delivered = 0, unreachable = 0;
	postroom_delivery *items;
	pthread_t stopper;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, pr_arena_printf(&amqp_rig.arena, "/%%2F/%s", amqp_own()));
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	items = rig_items(&amqp_rig, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		items[i].key = keys[i % 4]; /* a round trip for every four */
	proxy.mode = PROXY_DELAY;
	amqp_rig.flight.timeout_ms = 5000;
	CHECK(pthread_create(&stopper, NULL, stop_in_mid_batch, NULL) == 0);
	rig_publish(&amqp_rig, items, COUNT);
	pthread_join(stopper, NULL);
	CHECK(kill(server.pid, SIGCONT) == 0);
	for (size_t i = 0; i < COUNT; i++) {
		CHECK_MSG(items[i].verdict != POSTROOM_FAILED, "%s", items[i].reason);
		delivered += items[i].verdict == POSTROOM_DELIVERED;
		unreachable += items[i].verdict == POSTROOM_UNREACHABLE;
	}
	CHECK(delivered > 0 && delivered < COUNT && unreachable > 0);
	proxy_end(&proxy);
	rig_release(&amqp_rig);
}

#define LATE_MS 12000

static void *answer_late(void *context)
{
	int64_t late_us = *(int64_t *)context + LATE_MS * 600;

	while (pr_mono_us() < late_us)
		wait_a_moment();
	CHECK(kill(server.pid, SIGCONT) == 0);
	return NULL;
}

TEST(K8_late_channel_close_does_not_extend_the_deadline)
{
	postroom_delivery *item;
	int64_t begun_us;
	pthread_t other;

	start();
	proxy_start(&proxy, server.port);
	open_at(proxy.port, "/%2F/{topic}?heartbeat=0s");
	CHECK_INT(publish_one(amqp_own())->verdict, POSTROOM_DELIVERED);
	server_stop(&server);
	proxy.mode = PROXY_ONCE;
	amqp_rig.flight.timeout_ms = LATE_MS;
	begun_us = pr_mono_us();
	CHECK(pthread_create(&other, NULL, answer_late, &begun_us) == 0);
	item = publish_one("nowhere");
	/* The promise is a quarter more than the timeout; without it, the timeout twice. */
	CHECK(pr_mono_us() - begun_us < LATE_MS * 1000 * 3 / 2);
	pthread_join(other, NULL);
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	CHECK_CONTAINS(item->reason, "no exchange 'nowhere'");
	proxy_end(&proxy);
	rig_release(&amqp_rig);
}

TEST(K8_message_larger_than_the_socket_buffer_respects_the_deadline)
{
	char *body = calloc(LONG, 1);
	postroom_delivery *item;

	CHECK(body != NULL);
	start();
	open_own("");
	CHECK_INT(publish_one("a")->verdict, POSTROOM_DELIVERED);
	CHECK(kill(server.pid, SIGSTOP) == 0);
	item = rig_items(&amqp_rig, 1);
	item->body = body;
	item->body_len = LONG;
	amqp_rig.flight.timeout_ms = SHORT_MS;
	rig_publish(&amqp_rig, item, 1);
	CHECK(kill(server.pid, SIGCONT) == 0);
	CHECK_INT(item->verdict, POSTROOM_UNREACHABLE);
	rig_release(&amqp_rig);
	free(body);
}

/* No server can be made to disconnect in the middle of a flush: memory ends there instead. */
TEST(K8_bytes_sent_before_connection_failure_count_as_sent)
{
	enum { HALF = 128 * 1024 }; /* more than goes at once */
	struct pr_amqp_connection conn = { .address.host = "h" };
	const struct pr_flight flight = { 0 };
	struct pr_err err = { 0 };
	int ends[2];

	conn.out.data = mmap(NULL, (size_t)2 * HALF, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(conn.out.data != MAP_FAILED);
	CHECK_INT(mprotect(conn.out.data + HALF, HALF, PROT_NONE), 0);
	conn.out.len = conn.out.cap = (size_t)2 * HALF;
	CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	conn.net_stream.fd = ends[0];
	/* The server's last frame, which is still received. */
	CHECK_INT(write(ends[1], "!", 1), 1);
	CHECK_INT(pr_amqp_transfer(&conn, &flight, INT64_MAX, &err), POSTROOM_OK);
	CHECK(conn.out_at > 0 && conn.out_at < HALF);
	CHECK_INT(pr_amqp_send_offset(&conn), 2 * HALF);
	CHECK(!pr_amqp_unsend(&conn, conn.out_at - 1));
	CHECK(pr_amqp_unsend(&conn, HALF));
	CHECK_INT(conn.out.len, HALF);
	munmap(conn.out.data, (size_t)2 * HALF);
	pr_buf_release(&conn.in);
	close(ends[0]);
	close(ends[1]);
}
