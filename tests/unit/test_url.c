/* SPDX-License-Identifier: Apache-2.0 */
#include "../harness.h"
#include "base/url.h"

TEST(urls_are_split_into_parts)
{
	static const struct {
		const char *text, *scheme, *user, *password, *host, *path;
	} cases[] = {
		{ "null:", "null", "", "", "", "" },
		{ "file:out.ndjson", "file", "", "", "", "out.ndjson" },
		{ "file:/var/log/a%20b", "file", "", "", "", "/var/log/a b" },
		{ "file:///tmp/x", "file", "", "", "", "/tmp/x" },
		{ "sqlite:postroom.db", "sqlite", "", "", "", "postroom.db" },
		{ "SQLite:A.db", "sqlite", "", "", "", "A.db" },
		{ "kafka://a:1,b:2/orders", "kafka", "", "", "a:1,b:2", "orders" },
		{ "redis://:p%40ss@h:6379/s", "redis", "", "p@ss", "h:6379", "s" },
		{ "amqp://u:p@h:5672/v%2Fhost/ex", "amqp", "u", "p", "h:5672", "v/host/ex" },
		{ "nats://h", "nats", "", "", "h", "" },
		{ "nats://h/", "nats", "", "", "h", "" },
		{ "http://u@h/a/b", "http", "u", "", "h", "a/b" },
		{ "http://u:a@b@h/x", "http", "u", "a@b", "h", "x" },
		{ "http://u:a:b@h/x", "http", "u", "a:b", "h", "x" },
		{ "http://[::1]:80/x", "http", "", "", "[::1]:80", "x" },
		{ "http://h?a=1", "http", "", "", "h", "" },
		{ "http://h//x", "http", "", "", "h", "/x" },
		{ "x:a/b@c:d", "x", "", "", "", "a/b@c:d" },
		{ "kafka://h/{topic}", "kafka", "", "", "h", "{topic}" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pr_err err = { 0 };
		struct pr_url url;

		CHECK_MSG(pr_url_parse(cases[i].text, &url, &err) == POSTROOM_OK, "%s", err.text);
		CHECK_STR(url.scheme, cases[i].scheme);
		CHECK_STR(url.user, cases[i].user);
		CHECK_STR(url.password, cases[i].password);
		CHECK_STR(url.host, cases[i].host);
		CHECK_STR(url.path, cases[i].path);
		pr_url_release(&url);
		CHECK(!url.memory && !url.path);
	}
}

TEST(raw_path_is_kept_unchanged)
{
	struct pr_url url;

	CHECK_INT(pr_url_parse("http://h/group%2Fname%20x?a=%2F", &url, NULL), POSTROOM_OK);
	CHECK_STR(url.path, "group/name x");
	CHECK_STR(url.raw_path, "group%2Fname%20x");
	CHECK_STR(url.settings[0].value, "/");
	pr_url_release(&url);
}

TEST(url_settings_are_decoded)
{
	struct pr_url url;

	CHECK_INT(pr_url_parse("http://h/p?a=1&b%5fc=x%26y+z&&flag&d=&e==", &url, NULL),
		  POSTROOM_OK);
	CHECK_INT(url.setting_count, 5);
	CHECK_STR(url.settings[0].name, "a");
	CHECK_STR(url.settings[0].value, "1");
	CHECK_STR(url.settings[1].name, "b_c");
	CHECK_STR(url.settings[1].value, "x&y+z");
	CHECK_STR(url.settings[2].name, "flag");
	CHECK_STR(url.settings[2].value, "");
	CHECK_STR(url.settings[3].name, "d");
	CHECK_STR(url.settings[3].value, "");
	CHECK_STR(url.settings[4].name, "e");
	CHECK_STR(url.settings[4].value, "=");
	pr_url_release(&url);

	CHECK_INT(pr_url_parse("null:?", &url, NULL), POSTROOM_OK);
	CHECK_INT(url.setting_count, 0);
	CHECK_STR(url.path, "");
	pr_url_release(&url);

	CHECK_INT(pr_url_parse("null:?a&b&c", &url, NULL), POSTROOM_OK);
	CHECK_INT(url.setting_count, 3);
	CHECK_STR(url.settings[2].name, "c");
	pr_url_release(&url);
}

TEST(G1_bad_urls_are_refused_without_their_password)
{
	static const char *const bad[] = {
		"",
		"nothing",
		"/tmp/x",
		":x",
		"1a:x",
		"a b:x",
		"http://u:hunter2@h/%",
		"http://u:hunter2@h/%4",
		"http://u:hunter2@h/%zz",
		"http://u:hunter2@h/%00",
		"http://u:hunter2%@h/",
		"http://u:hunter2@h/?=x",
		"http://u:hunter2@h/?a=%x",
		"http://u:hunter2@h/\n",
		"http://u:hunter2@h/\x7f",
		"http://u:hunter2/x@h/%",
		"http://u:hunter2?x@h/%",
		"http://h/?password=hunter2&x=%",
		"http://h/?x=%&client_secret=hunter2",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pr_err err = { 0 };
		struct pr_url url;

		CHECK_MSG(pr_url_parse(bad[i], &url, &err) == POSTROOM_INVALID, "took %s", bad[i]);
		CHECK(!url.memory);
		CHECK_CONTAINS(err.text, "is not a URL");
		CHECK_MSG(!strstr(err.text, "hunter2"), "error: %s", err.text);
	}
}

TEST(G1_redacted_urls_show_no_secret)
{
	static const char *const cases[][2] = {
		{ "redis://:pw@host/stream", "redis://:***@host/stream" },
		{ "amqp://u:pw@h:5672/v", "amqp://u:***@h:5672/v" },
		{ "amqp://u:p@w@h/v", "amqp://u:***@h/v" },
		{ "amqp://u:p/w@h/v", "amqp://u:***@h/v" },
		{ "amqp://u:p?w@h/v?a=1", "amqp://u:***@h/v?a=1" },
		{ "http://u@h/x", "http://u@h/***" },
		{ "https://h", "https://h" },
		{ "https://h/", "https://h/" },
		{ "HTTPS://h/services/T0/B0?mode=binary", "HTTPS://h/***/***/***?mode=binary" },
		{ "http://h/a{topic}b/{topik}?a=/b", "http://h/***{topic}***/***?a=/b" },
		{ "http://u:pw@h/a?query=t=s&a=1", "http://u:***@h/***?query=***&a=1" },
		{ "nats://token@h/x", "nats://***@h/x" },
		{ "NATS://token@a:1,b:2/x@y", "NATS://***@a:1,b:2/x@y" },
		{ "nats://u:pw@h:1/x", "nats://u:***@h:1/x" },
		{ "nats://h:1/x@y", "nats://h:1/x@y" },
		{ "http://h:80/a@b", "http://h:80/***" },
		{ "kafka://a:1,b/x", "kafka://a:1,b/x" },
		{ "http://h/?secret=s&a=1", "http://h/?secret=***&a=1" },
		{ "http://h/?a=1&sasl.password=s", "http://h/?a=1&sasl.password=***" },
		{ "http://h/?API_TOKEN=s", "http://h/?API_TOKEN=***" },
		{ "http://h/?header=A: s&proxy=http://u:s@p", "http://h/?header=***&proxy=***" },
		{ "file:a", "file:a" },
		{ "", "" },
	};
	char out[100];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pr_url_redact(cases[i][0], out, sizeof(out));
		CHECK_STR(out, cases[i][1]);
		for (size_t size = 1; size <= strlen(cases[i][1]); size++) {
			pr_url_redact(cases[i][0], out, size);
			CHECK_INT(strlen(out), size - 1);
			CHECK(strncmp(out, cases[i][1], size - 1) == 0);
		}
	}
}

TEST(G1_redacted_words_show_no_secret)
{
	static const char *const cases[][2] = {
		{ "--db=postgres://u:pw@h/d?password=pw", "--db=postgres://****@h/d?password=**" },
		{ "http://h/?secret=s&a=1&secret=t", "http://h/?secret=*&a=1&secret=*" },
		{ "http://h/?header=A: s&proxy=http://u:s@p&b=1",
		  "http://*******************************@p&b=1" },
		{ "http://h/?header=A: s&b=1", "http://h/?header=****&b=1" },
		{ "kafka://h/t?kafka.ssl.key.pem=a b", "kafka://h/t?kafka.ssl.key.pem=***" },
		{ "host=h password='a b' user=u", "host=h password=************" },
		{ "http://h/a=b?c=d", "http://h/***?c=d" },
		{ "--to=https://h/a/{topic}-b/?query=k%3Ds",
		  "--to=https://h/*/{topic}**/?query=*****" },
		{ "redis://h/stream", "redis://h/stream" },
		{ "exec:curl http://h/path", "exec:curl http://h/path" },
		{ "relay", "relay" },
		{ "", "" },
	};
	char text[100];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(text, sizeof(text), "%s", cases[i][0]);
		pr_url_hide(text);
		CHECK_STR(text, cases[i][1]);
	}
}
