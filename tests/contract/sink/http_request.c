/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of http://: headers, addresses, settings. */
#include "contract/sink/http_server.h"
#include "sink/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>

TEST(K4_header_that_http_cannot_carry_is_rejected)
{
	static const char *const headers[] = {
		"{\"a b\":\"x\"}",	   "{\"\":\"x\"}",
		"{\"a:b\":\"x\"}",	   "{\"h\\u00e9\":\"x\"}",
		"{\"a\\r\\nEvil\":\"x\"}", "{\"a\":\"x\\r\\nEvil: y\"}",
		"{\"a\":\"x\\ny\"}",	   "{\"a\":\"\\u007f\"}",
		"{\"a\":\"\\u0001\"}",
	};

	begin(answer_ok, "/");
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		postroom_delivery item = run_item(item_with(headers[i]));

		CHECK_MSG(item.verdict == POSTROOM_REJECTED, "%s: %d", headers[i],
			  (int)item.verdict);
		CHECK_CONTAINS(item.reason, "cannot be sent by HTTP");
	}
	CHECK_INT(web.requests, 0);
	rig_release(&rig);
}

TEST(K4_a_content_type_with_a_line_break_is_rejected)
{
	postroom_delivery item;

	begin(answer_ok, "/");
	item = rig_item(&rig, 1, NULL, NULL);
	item.content_type = "text/plain\r\nEvil: y";
	CHECK_INT(run_item(item).verdict, POSTROOM_REJECTED);
	CHECK_INT(web.requests, 0);
	rig_release(&rig);
}

TEST(K4_headers_of_messages_never_replace_headers_of_the_sink)
{
	begin(answer_ok, "/?header=X-Team:%20orders");
	CHECK_INT(
		run_item(item_with("{\"traceparent\":\"00-1-2-01\",\"tracestate\":\"a=b\","
				   "\"empty\":\"\",\"tab\":\"a\\tb\",\"Content-Length\":\"9999\","
				   "\"transfer-encoding\":\"chunked\",\"HOST\":\"evil\","
				   "\"ce-id\":\"evil\",\"Webhook-Id\":\"evil\",\"x-team\":\"evil\","
				   "\"idempotency-key\":\"evil\",\"connection\":\"close\"}"))
			.verdict,
		POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "\r\ntraceparent: 00-1-2-01\r\n");
	CHECK_CONTAINS(seen(), "\r\ntracestate: a=b\r\n");
	CHECK_CONTAINS(seen(), "\r\nempty:\r\n");
	CHECK_CONTAINS(seen(), "\r\ntab: a\tb\r\n");
	CHECK_CONTAINS(seen(), "\r\nX-Team: orders\r\n");
	CHECK_CONTAINS(seen(), "\r\nIdempotency-Key: id-1\r\n");
	CHECK(!strcasestr(seen(), "evil") && !strcasestr(seen(), "chunked"));
	CHECK(!strcasestr(seen(), "9999") && !strcasestr(seen(), "connection:"));
	CHECK(!strcasestr(seen(), "webhook-"));
	rig_release(&rig);
}

TEST(K4_blanks_around_a_header_value_are_not_sent)
{
	begin(answer_ok, "/");
	CHECK_INT(run_item(item_with("{\"a\":\" \\tx y\\t \",\"b\":\" \"}")).verdict,
		  POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "\r\na: x y\r\n");
	CHECK_CONTAINS(seen(), "\r\nb:\r\n");
	rig_release(&rig);
}

TEST(K4_escaped_path_stays_escaped)
{
	begin(answer_ok, "/projects/group%2Fname%3b/%7Btopic}/\xc3\xa9 %C3%A9");
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "POST /projects/group%2Fname%3b/orders.created/%C3%A9%20%C3%A9 "
			       "HTTP/1.1\r\n");
	rig_release(&rig);
}

TEST(K4_message_cannot_escape_the_template_of_the_path)
{
	postroom_delivery item;

	begin(answer_ok, "/in/{topic}/x%20y?query=a=b%26c={key}");
	item = rig_item(&rig, 1, NULL, NULL);
	item.topic = "a/../b?c#d%";
	item.key = "k&l=m";
	CHECK_INT(run_item(item).verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "POST /in/a%2F..%2Fb%3Fc%23d%25/x%20y?a=b&c=k%26l%3Dm HTTP/1.1\r\n");
	item.topic = "..";
	item = run_item(item);
	CHECK_INT(item.verdict, POSTROOM_REJECTED);
	CHECK_INT(web.requests, 1);
	rig_release(&rig);
}

TEST(K4_put_credentials_and_fixed_headers_are_sent)
{
	char url[200];

	rig_init(&rig);
	start_server(answer_ok);
	snprintf(url, sizeof(url), "http://me:pass%%40word@%s/?method=PUT",
		 web.base + strlen("http://"));
	rig_open(&rig, url);
	CHECK_INT(run_item(item_with("{\"Authorization\":\"evil\"}")).verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "PUT / HTTP/1.1\r\n");
	CHECK_CONTAINS(seen(), "Authorization: Basic bWU6cGFzc0B3b3Jk\r\n");
	CHECK(!strstr(seen(), "evil"));
	rig_release(&rig);
}

TEST(K4_message_header_cannot_replace_a_password_without_a_user)
{
	char url[200];

	rig_init(&rig);
	start_server(answer_ok);
	snprintf(url, sizeof(url), "http://:pw@%s/", web.base + strlen("http://"));
	rig_open(&rig, url);
	CHECK_INT(run_item(item_with("{\"Authorization\":\"evil\"}")).verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "Authorization: Basic OnB3\r\n");
	CHECK(!strstr(seen(), "evil"));
	rig_release(&rig);
}

TEST(K4_proxies_of_the_environment_are_not_used)
{
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("all_proxy", "http://127.0.0.1:1", 1);
	CHECK_INT(run_one(answer_ok, "/").verdict, POSTROOM_DELIVERED);
	rig_release(&rig);
}

TEST(K4_configured_proxy_is_used)
{
	char url[200];

	setenv("no_proxy", "*", 1);
	rig_init(&rig);
	start_server(answer_ok);
	snprintf(url, sizeof(url), "http://far.invalid/hook?proxy=%s", web.base);
	rig_open(&rig, url);
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	CHECK_CONTAINS(seen(), "POST http://far.invalid/hook HTTP/1.1\r\n");
	rig_release(&rig);
}

static void check_address(const char *text, bool expected)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	const struct sockaddr *address = (const struct sockaddr *)&v4;

	if (inet_pton(AF_INET, text, &v4.sin_addr) != 1) {
		CHECK_MSG(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1, "%s", text);
		address = (const struct sockaddr *)&v6;
	}
	CHECK_MSG(pr_http_is_private(address) == expected, "%s", text);
}

TEST(K4_deny_private_covers_all_non_public_ranges)
{
	static const char *const private[] = {
		"0.0.0.0",
		"0.1.2.3",
		"10.0.0.1",
		"10.255.255.255",
		"100.64.0.1",
		"100.127.255.255",
		"127.0.0.1",
		"127.255.255.254",
		"169.254.169.254",
		"172.16.0.1",
		"172.31.255.255",
		"192.0.0.1",
		"192.0.2.1",
		"192.168.0.1",
		"192.168.255.255",
		"198.18.0.1",
		"198.19.255.255",
		"198.51.100.7",
		"203.0.113.7",
		"224.0.0.1",
		"240.0.0.1",
		"255.255.255.255",
		"::",
		"::1",
		"::ffff:127.0.0.1",
		"::ffff:10.0.0.1",
		"::127.0.0.1",
		"64:ff9b::10.0.0.1",
		"64:ff9b:1::1",
		"fe80::1",
		"febf::1",
		"fec0::1",
		"fc00::1",
		"fdff::1",
		"ff02::1",
		"2001:db8::1",
		"2001::1",
		"2002:7f00:1::",
		"2002:c0a8:101::1",
		"100::1",
		"3fff::1",
	};
	static const char *const public[] = {
		"1.1.1.1",	  "9.255.255.255",    "11.0.0.0",	 "100.63.255.255",
		"100.128.0.0",	  "126.255.255.255",  "128.0.0.0",	 "169.253.255.255",
		"169.255.0.0",	  "172.15.255.255",   "172.32.0.0",	 "192.167.255.255",
		"192.169.0.0",	  "223.255.255.255",  "2606:4700::1111", "2a00::1",
		"::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1", "2001:4860::8888",
	};

	for (size_t i = 0; i < sizeof(private) / sizeof(*private); i++)
		check_address(private[i], true);
	for (size_t i = 0; i < sizeof(public) / sizeof(*public); i++)
		check_address(public[i], false);
}

TEST(K4_deny_private_checks_the_address_not_the_name)
{
	static const char *const hosts[] = {
		"localhost",	   "127.0.0.1",		 "127.1",
		"2130706433",	   "0x7f000001",	 "0",
		"[::1]",	   "[::ffff:127.0.0.1]", "[::]",
		"169.254.169.254", "10.1.2.3",		 "[fe80::1]",
	};
	const char *port;
	char url[200];

	rig_init(&rig);
	start_server(answer_ok);
	port = strrchr(web.base, ':');
	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		postroom_delivery item;

		snprintf(url, sizeof(url), "http://%s%s/?deny_private=true", hosts[i], port);
		rig_open(&rig, url);
		item = run_item(rig_item(&rig, 1, NULL, NULL));
		CHECK_MSG(item.verdict == POSTROOM_UNREACHABLE, "%s: %d", hosts[i],
			  (int)item.verdict);
		CHECK_CONTAINS(item.reason, "deny_private");
		pr_sink_close(rig.sink);
	}
	CHECK_INT(web.connections, 0);
	rig_open(&rig, "null:");
	rig_release(&rig);
}

TEST(K4_reason_does_not_name_an_unused_private_address)
{
	struct pr_http_request request = { .denied = true };
	postroom_delivery item;

	begin(NULL, "/");
	item = rig_item(&rig, 1, NULL, NULL);
	request.http = (struct pr_http *)rig.sink;
	request.item = &item;
	request.easy = curl_easy_init();
	CHECK(request.easy != NULL);
	pr_http_judge(&request, CURLE_OPERATION_TIMEDOUT, &rig.flight);
	CHECK_MSG(!strstr(item.reason, "private"), "%s", item.reason);
	curl_easy_cleanup(request.easy);
	rig_release(&rig);
}

/* Of the sockets of this process, how many the kernel gives up after ms without an acknowledgement. */
static int count_impatient(int ms)
{
	int found = 0, value;

	for (int fd = 3; fd < 100; fd++) {
		socklen_t len = sizeof(value);

		found += getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &len) == 0 &&
			 value == ms;
	}
	return found;
}

TEST(D5_dead_connection_ends_with_the_timeout)
{
	begin(answer_ok, "/?connections=1");
	rig.flight.timeout_ms = 123456;
	CHECK_INT(run_item(rig_item(&rig, 1, NULL, NULL)).verdict, POSTROOM_DELIVERED);
	CHECK_INT(count_impatient(123456), 1);
	rig_release(&rig);
}

TEST(K4_invalid_settings_are_clear_errors_and_show_no_secret)
{
	static const struct {
		const char *url, *says;
	} cases[] = {
		{ "http:", "host" },
		{ "http:///path", "host" },
		{ "http://a b/", "host" },
		{ "http://x:99999/", "host" },
		{ "http://x/?secret=whsec_hush!hush", "whsec_" },
		{ "http://x/?secret=", "whsec_" },
		{ "http://x/?secret=whsec_aHVzaA==,hush!hush", "whsec_" },
		{ "http://x/?header=hushhush", "NAME: VALUE" },
		{ "http://x/?header=X:%20a%0d%0aEvil:%20hushhush", "NAME: VALUE" },
		{ "http://x/?header=X%20Y:%20hushhush", "NAME: VALUE" },
		{ "http://x/?header=X:", "has no value" },
		{ "http://x/?header=Content-Length:%205", "Content-Length" },
		{ "http://x/?header=ce-id:%205", "ce-id" },
		{ "http://x/?mode=batched", "structured" },
		{ "http://x/?method=GET", "POST" },
		{ "http://x/?connections=0", "connections" },
		{ "http://x/?follow=11", "follow" },
		{ "http://x/?ca=/etc/hosts", "https" },
		{ "https://x/?ca=/no/such/file", "/no/such/file" },
		{ "https://x/?key=/etc/hosts", "cert" },
		{ "http://x/?proxy=http://p:1&deny_private=true", "proxy" },
		{ "http://x/?proxy=gopher://me:hushhush@p:1", "proxy=http://" },
		{ "http://x/?proxy=http://me:hushhush@p:99999", "proxy=http://" },
		{ "http://x/?proxy=http://me:hushhush@p%20q:1", "proxy=http://" },
		{ "https://x/?ca=/etc/hosts", "\"/etc/hosts\" contains no certificate" },
		{ "https://x/?cert=/etc/hosts", "\"/etc/hosts\" contains no certificate" },
		{ "http://x/v1/../{topic}", ".." },
		{ "http://x/%2e/{topic}", ".." },
		{ "http://x/?source=", "URI" },
		{ "http://x/{topc}", "{topic}" },
		{ "http://x/?conections=3", "connections" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_sink *none = NULL;
		struct pr_err err = { 0 };

		CHECK_MSG(pr_sink_open(cases[i].url, &none, &err) == POSTROOM_SINK, "%s: %d %s",
			  cases[i].url, err.status, err.text);
		CHECK_MSG(strstr(err.text, cases[i].says), "%s: %s", cases[i].url, err.text);
		CHECK_MSG(!strstr(err.text, "hush"), "%s: %s", cases[i].url, err.text);
	}
}
