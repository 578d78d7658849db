/* SPDX-License-Identifier: Apache-2.0 */
/*
  * Promises of http:// beyond the sink contract, with a server that
  * sends, byte for byte, the responses that each test chooses.
 */
#include "contract/sink/http_server.h"
#include "contract/sink/sink.h"

#include "base/time.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* With the status, and the Retry-After, that the message's headers want. */
static bool answer_as_configured(const struct request *request)
{
	char status[8], retry[64], text[300];
	const char *body = "it was\r\n\x01 not\twanted \xff";

	header_of(request, "x-status", status, sizeof(status));
	header_of(request, "x-retry", retry, sizeof(retry));
	if (strcmp(status, "204") == 0 || strcmp(status, "304") == 0)
		body = "";
	snprintf(text, sizeof(text), "HTTP/1.1 %s Whatever\r\nContent-Length: %zu\r\n%s%s%s\r\n%s",
		 status, strlen(body), retry[0] ? "Retry-After: " : "", retry,
		 retry[0] ? "\r\n" : "", body);
	say(request, text);
	return true;
}

static postroom_verdict expected_verdict(int status)
{
	static const int unreachable[] = { 401, 403, 404, 407 };
	static const int rejected[] = { 400, 405, 410, 411, 413, 414, 415, 422 };

	for (size_t i = 0; i < sizeof(unreachable) / sizeof(int); i++) {
		if (unreachable[i] == status)
			return POSTROOM_UNREACHABLE;
	}
	for (size_t i = 0; i < sizeof(rejected) / sizeof(int); i++) {
		if (rejected[i] == status)
			return POSTROOM_REJECTED;
	}
	if (status < 300)
		return POSTROOM_DELIVERED;
	return status < 400 ? POSTROOM_UNREACHABLE : POSTROOM_FAILED;
}

TEST(K4_the_status_is_the_verdict)
{
	postroom_delivery *items;
	char reason[60];

	begin(answer_as_configured, "/");
	items = rig_items(&rig, 400);
	for (int i = 0; i < 400; i++)
		items[i].headers = pr_arena_printf(&rig.arena, "{\"x-status\":\"%d\"}", i + 200);
	rig_publish(&rig, items, 400);
	for (int i = 0; i < 400; i++) {
		int status = i + 200;

		CHECK_MSG(items[i].verdict == expected_verdict(status), "%d: verdict %d", status,
			  (int)items[i].verdict);
		CHECK((items[i].reason == NULL) == (status < 300));
		CHECK(items[i].retry_in_ms == -1);
		snprintf(reason, sizeof(reason), "HTTP %d: it was not wanted \xef\xbf\xbd", status);
		if (status >= 300 && status != 304)
			CHECK_STR(items[i].reason, reason);
	}
	CHECK_STR(items[104].reason, "HTTP 304");
	rig_release(&rig);
}

static int64_t retry_for(const char *status, const char *retry)
{
	char headers[200];

	snprintf(headers, sizeof(headers), "{\"x-status\":\"%s\",\"x-retry\":\"%s\"}", status,
		 retry);
	return run_item(item_with(headers)).retry_in_ms;
}

static void http_date(time_t when, char out[64])
{
	struct tm parts;

	gmtime_r(&when, &parts);
	strftime(out, 64, "%a, %d %b %Y %H:%M:%S GMT", &parts);
}

TEST(R3_retry_after_is_respected_in_both_forms_and_bounded)
{
	char date[64];
	int64_t wait_ms;

	begin(answer_as_configured, "/");
	CHECK_INT(retry_for("503", "120"), 120000);
	CHECK_INT(retry_for("429", "1"), 1000);
	CHECK_INT(retry_for("408", "7"), 7000);
	CHECK_INT(retry_for("503", "86399"), 86399 * 1000);
	CHECK_INT(retry_for("503", "999999999"), 24 * 3600 * 1000);
	CHECK_INT(retry_for("503", "99999999999999999999999999999999"), 24 * 3600 * 1000);
	CHECK_INT(retry_for("503", "0"), -1);
	CHECK_INT(retry_for("503", "soon"), -1);
	CHECK_INT(retry_for("503", "-5"), -1);
	CHECK_INT(retry_for("503", ""), -1);
	CHECK_INT(retry_for("400", "120"), -1);
	CHECK_INT(retry_for("302", "120"), -1);
	http_date(time(NULL) - 100, date);
	CHECK_INT(retry_for("503", date), -1);
	http_date(time(NULL) + 10 * 3600, date);
	wait_ms = retry_for("503", date);
	CHECK_MSG(wait_ms > 9 * 3600 * 1000 && wait_ms <= 10 * 3600 * 1000, "%lld",
		  (long long)wait_ms);
	rig_release(&rig);
}

static bool answer_bad_topic(const struct request *request)
{
	char type[64];

	header_of(request, "ce-type", type, sizeof(type));
	if (strcmp(type, "orders.created") == 0)
		return answer_ok(request);
	say(request, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
	return true;
}

static bool answer_bad_seven(const struct request *request)
{
	char id[64];

	header_of(request, "ce-id", id, sizeof(id));
	if (strcmp(id, "id-7") != 0)
		return answer_ok(request);
	say(request, "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
	return true;
}

TEST(D6_failed_message_blocks_later_messages_of_its_key)
{
	postroom_delivery *items;

	begin(answer_bad_seven, "/");
	items = rig_items(&rig, 100);
	for (int i = 0; i < 100; i++)
		items[i].key = i % 5 == 2 ? "bad" : i % 5 == 0 ? "good" : NULL;
	rig_publish(&rig, items, 100);
	for (int i = 0; i < 100; i++) {
		postroom_verdict expected = POSTROOM_DELIVERED;

		if (i % 5 == 2 && i >= 7)
			expected = i == 7 ? POSTROOM_FAILED : POSTROOM_UNTRIED;
		CHECK_MSG(items[i].verdict == expected, "message %d: %d", i, (int)items[i].verdict);
	}
	CHECK(!strstr(seen(), "ce-id: id-12\r\n"));
	rig_release(&rig);
}

TEST(D6_messages_of_a_key_are_delivered_in_order)
{
	postroom_delivery *items;
	const char *at;

	begin(answer_ok, "/");
	items = rig_items(&rig, 200);
	for (int i = 0; i < 200; i++)
		items[i].key = i % 2 == 0 ? "one" : i % 3 == 0 ? "two" : NULL;
	rig_publish(&rig, items, 200);
	at = seen();
	for (int i = 0; i < 200; i += 2) {
		char line[40];

		CHECK_INT(items[i].verdict, POSTROOM_DELIVERED);
		snprintf(line, sizeof(line), "ce-id: id-%d\r\n", i);
		at = strstr(at, line);
		CHECK_MSG(at != NULL, "message %d is not behind the one before it", i);
	}
	rig_release(&rig);
}

TEST(K4_connection_is_reused)
{
	begin(answer_ok, "/?connections=1");
	for (int round = 0; round < 5; round++) {
		postroom_delivery *items = rig_items(&rig, 20);

		rig_publish(&rig, items, 20);
		CHECK_INT(items[19].verdict, POSTROOM_DELIVERED);
	}
	CHECK_INT(web.requests, 100);
	CHECK_INT(web.connections, 1);
	rig_release(&rig);
}

static bool answer_when_all_are_here(const struct request *request)
{
	while (web.connections < 4)
		wait_a_moment();
	return answer_ok(request);
}

TEST(K4_requests_in_flight_equal_connections)
{
	postroom_delivery *items;

	begin(answer_when_all_are_here, "/?connections=4");
	items = rig_items(&rig, 40);
	rig_publish(&rig, items, 40);
	CHECK_INT(items[39].verdict, POSTROOM_DELIVERED);
	CHECK_INT(web.connections, 4);
	rig_release(&rig);
}

TEST(K4_many_messages_leak_nothing)
{
	size_t before;

	begin(answer_ok, "/?secret=whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ%3D&mode=structured");
	rig_publish(&rig, rig_items(&rig, 200), 200);
	before = open_descriptors();
	for (int round = 0; round < 10; round++) {
		rig_publish(&rig, rig_items(&rig, 200), 200);
		pr_arena_reset(&rig.arena);
	}
	/* Two ends of up to 32 connections are in this process. */
	CHECK(open_descriptors() <= before + 64);
	CHECK_INT(web.requests, 2200);
	rig_release(&rig);
}

static bool hang(const struct request *request)
{
	struct request more = { .fd = request->fd };

	while (read_more(&more))
		;
	pr_buf_release(&more.text);
	return false;
}

static bool hang_in_headers(const struct request *request)
{
	say(request, "HTTP/1.1 200 OK\r\nContent-");
	return hang(request);
}

static bool hang_in_body(const struct request *request)
{
	say(request, "HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nbroken");
	return hang(request);
}

static bool hang_in_body_of_200(const struct request *request)
{
	say(request, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfine");
	return hang(request);
}

static bool trickle(const struct request *request)
{
	for (;;) {
		if (write(request->fd, "H", 1) <= 0)
			return false;
		wait_a_moment();
	}
}

static void check_deadline(answer_fn answer, const char *rest, postroom_verdict verdict,
			   const char *reason)
{
	postroom_delivery item;

	begin(answer, rest);
	rig.flight.timeout_ms = 5000;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_MSG(item.verdict == verdict, "%s: verdict %d (%s)", rest, (int)item.verdict,
		  item.reason);
	if (reason)
		CHECK_CONTAINS(item.reason, reason);
	rig_release(&rig);
}

TEST(D5_server_that_never_accepts_the_connection_times_out)
{
	check_deadline(NULL, "/", POSTROOM_FAILED, "no answer within 5s");
}

TEST(D5_server_that_never_answers_times_out)
{
	check_deadline(hang, "/", POSTROOM_FAILED, "no answer within 5s");
}

TEST(D5_server_that_never_ends_its_headers_times_out)
{
	check_deadline(hang_in_headers, "/", POSTROOM_FAILED, "no answer");
}

TEST(D5_status_counts_if_the_body_never_ends)
{
	check_deadline(hang_in_body, "/", POSTROOM_FAILED, "HTTP 500: broken");
}

TEST(D5_status_200_is_delivered_if_the_body_never_ends)
{
	check_deadline(hang_in_body_of_200, "/", POSTROOM_DELIVERED, NULL);
}

TEST(D5_server_that_trickles_times_out)
{
	check_deadline(trickle, "/", POSTROOM_UNREACHABLE, NULL);
}

TEST(D5_server_that_hangs_in_the_tls_handshake_is_unreachable)
{
	postroom_delivery item;
	char url[200];

	rig_init(&rig);
	start_server(NULL);
	snprintf(url, sizeof(url), "https%s/", web.base + strlen("http"));
	rig_open(&rig, url);
	rig.flight.timeout_ms = 2000;
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	rig_release(&rig);
}

TEST(D5_connect_timeout_is_respected)
{
	postroom_delivery item;
	char url[200];

	rig_init(&rig);
	start_server(NULL);
	snprintf(url, sizeof(url), "https%s/?connect_timeout=100ms", web.base + strlen("http"));
	rig_open(&rig, url);
	/* With AMPLE_MS for the whole: only the other limit can end this. */
	item = run_item(rig_item(&rig, 1, NULL, NULL));
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	rig_release(&rig);
}

static bool cut(const struct request *request)
{
	(void)request;
	return false;
}

static bool cut_in_headers(const struct request *request)
{
	say(request, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
	return false;
}

static bool cut_in_body(const struct request *request)
{
	say(request, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok");
	return false;
}

static bool cut_after_interim(const struct request *request)
{
	say(request, "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n");
	return false;
}

static bool answer_after_interims(const struct request *request)
{
	say(request, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n");
	return answer_ok(request);
}

static bool answer_in_chunks(const struct request *request)
{
	const char *text = "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n"
			   "3\r\nbro\r\n4;x=y\r\nken!\r\n0\r\nTrailer: x\r\n\r\n";

	for (; *text; text++) {
		if (write(request->fd, text, 1) != 1)
			return false;
	}
	return true;
}

static bool answer_garbage(const struct request *request)
{
	say(request, "220 mail.example.test ESMTP\r\n\r\n");
	return false;
}

static bool repeat_header(const struct request *request, const char *line)
{
	say(request, "HTTP/1.1 200 OK\r\n");
	while (write(request->fd, line, strlen(line)) > 0)
		;
	return false;
}

static bool answer_endless_headers(const struct request *request)
{
	char line[1024];

	snprintf(line, sizeof(line), "X-More: %01000d\r\n", 0);
	return repeat_header(request, line);
}

static bool answer_endless_short_headers(const struct request *request)
{
	return repeat_header(request, "X-More: and more\r\n");
}

static bool answer_endless_body(const struct request *request)
{
	say(request, "HTTP/1.1 500 No\r\n\r\n");
	while (write(request->fd, "and more ", 9) > 0)
		;
	return false;
}

TEST(K4_unusual_responses_have_their_verdicts)
{
	static const struct {
		answer_fn answer;
		postroom_verdict verdict;
		const char *reason;
	} cases[] = {
		{ cut, POSTROOM_UNREACHABLE, "" },
		{ cut_in_headers, POSTROOM_UNREACHABLE, "" },
		{ cut_in_body, POSTROOM_DELIVERED, NULL },
		{ cut_after_interim, POSTROOM_UNREACHABLE, "" },
		{ answer_after_interims, POSTROOM_DELIVERED, NULL },
		{ answer_in_chunks, POSTROOM_FAILED, "HTTP 500: broken!" },
		{ answer_garbage, POSTROOM_UNREACHABLE, "" },
		{ answer_endless_headers, POSTROOM_UNREACHABLE, "longer than 256 KiB" },
		/* Newer versions of libcurl take 5,000 of them. */
		{ answer_endless_short_headers, POSTROOM_UNREACHABLE, "headers" },
		{ answer_endless_body, POSTROOM_FAILED, "HTTP 500: and more and more" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		postroom_delivery item = run_one(cases[i].answer, "/");

		CHECK_MSG(item.verdict == cases[i].verdict, "case %zu: verdict %d (%s)", i,
			  (int)item.verdict, item.reason);
		if (cases[i].reason)
			CHECK_CONTAINS(item.reason, cases[i].reason);
		rig_release(&rig);
	}
}

TEST(K4_refused_connection_is_unreachable)
{
	begin(NULL, "/");
	close(web.fd);
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_UNREACHABLE);
	pr_sink_close(rig.sink);
	rig_open(&rig, "http://no-such-host.invalid/");
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_UNREACHABLE);
	rig_release(&rig);
}

static bool redirect_once(const struct request *request)
{
	if (strncmp(request->text.data, "POST /old ", 10) != 0)
		return answer_ok(request);
	say(request, "HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n");
	return true;
}

TEST(K4_a_redirect_is_not_followed_unless_asked_for)
{
	postroom_delivery item = run_one(redirect_once, "/old");

	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_STR(item.reason, "HTTP 302: moved to another path there");
	CHECK_INT(web.requests, 1);
	rig_release(&rig);
}

TEST(K4_followed_redirect_resends_the_message)
{
	postroom_delivery item = run_one(redirect_once, "/old?follow=1");

	CHECK_INT(item.verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "POST /new HTTP/1.1\r\n");
	CHECK_CONTAINS(strstr(seen(), "POST /new"), "{\"number\": 1}");
	rig_release(&rig);
}

static bool redirect_always(const struct request *request)
{
	say(request, "HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n");
	return true;
}

TEST(K4_redirect_beyond_the_limit_is_the_verdict)
{
	postroom_delivery item = run_one(redirect_always, "/old?follow=2");

	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_STR(item.reason, "HTTP 302: moved to another path there");
	CHECK_INT(web.requests, 3);
	rig_release(&rig);
}

static bool redirect_and_hang(const struct request *request)
{
	if (strncmp(request->text.data, "POST /old ", 10) != 0)
		return hang(request);
	return redirect_once(request);
}

static bool redirect_to_closed_port(const struct request *request)
{
	say(request, "HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\n"
		     "Content-Length: 0\r\n\r\n");
	return true;
}

TEST(K4_followed_redirect_is_not_the_verdict)
{
	postroom_delivery item;

	check_deadline(redirect_and_hang, "/old?follow=1", POSTROOM_FAILED,
		       "no answer within 5s");
	item = run_one(redirect_to_closed_port, "/old?follow=1");
	CHECK_INT(item.verdict, POSTROOM_UNREACHABLE);
	CHECK_MSG(!strstr(item.reason, "HTTP 307"), "%s", item.reason);
	rig_release(&rig);
}

static void *stop_when_asked(void *context)
{
	int64_t grace_ms = *(const int64_t *)context;

	while (web.requests == 0)
		wait_a_moment();
	pr_stop_request(&rig.stop, grace_ms);
	return NULL;
}

static bool answer_after_the_stop(const struct request *request)
{
	while (!pr_stop_requested(&rig.stop))
		wait_a_moment();
	return answer_ok(request);
}

static void publish_and_stop(int64_t grace_ms, postroom_delivery *items, size_t count)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, stop_when_asked, &grace_ms) == 0);
	rig_publish(&rig, items, count);
	pthread_join(thread, NULL);
}

TEST(D4_stop_finishes_requests_and_begins_no_more)
{
	postroom_delivery *items;

	begin(answer_after_the_stop, "/?connections=2");
	items = rig_items(&rig, 10);
	publish_and_stop(AMPLE_MS, items, 10);
	CHECK_INT(items[0].verdict, POSTROOM_DELIVERED);
	for (int i = 2; i < 10; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNTRIED);
	rig_release(&rig);
}

TEST(D4_the_end_of_the_grace_ends_requests)
{
	postroom_delivery *items;

	begin(hang, "/?connections=2");
	items = rig_items(&rig, 10);
	publish_and_stop(50, items, 10);
	/* Stopping a relay is not a failure of the message. */
	CHECK_INT(items[0].verdict, POSTROOM_UNREACHABLE);
	CHECK_STR(items[0].reason, "stopped");
	CHECK_INT(items[9].verdict, POSTROOM_UNTRIED);
	rig_release(&rig);
}

/* Its next_us counts the renewals; the third finds that another has the lease. */
static void renew_twice(struct pr_lease_renewer *renewer)
{
	renewer->next_us++;
	if (renewer->next_us == 3)
		renewer->until_us = 0;
}

TEST(A5_lease_of_running_requests_is_renewed_and_its_loss_ends_them)
{
	struct pr_lease_renewer renewer = { .renew = renew_twice, .until_us = INT64_MAX };
	postroom_delivery *items;

	begin(hang, "/?connections=2");
	items = rig_items(&rig, 10);
	rig.flight.renewer = &renewer;
	rig_publish(&rig, items, 10);
	CHECK_INT(renewer.next_us, 3);
	for (int i = 0; i < 10; i++)
		CHECK_INT(items[i].verdict, POSTROOM_UNTRIED);
	rig_release(&rig);
}

TEST(K4_one_bad_message_gets_its_own_verdict)
{
	postroom_delivery *items;

	begin(answer_bad_topic, "/");
	items = rig_items(&rig, 5);
	items[2].topic = "bad";
	rig_publish(&rig, items, 5);
	for (int i = 0; i < 5; i++)
		CHECK_INT(items[i].verdict, i == 2 ? POSTROOM_FAILED : POSTROOM_DELIVERED);
	rig_release(&rig);
}
