/* SPDX-License-Identifier: Apache-2.0 */
/* A health probe for container images without curl. */
#include "cli/cli.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_URL "http://127.0.0.1:8025"
#define ANSWER_MAX ((size_t)1024 * 1024)

struct health_options {
	int64_t timeout_ms;
};

static const struct pr_param params[] = {
	{ .name = "timeout",
	  .type = PR_PARAM_DURATION,
	  .offset = offsetof(struct health_options, timeout_ms),
	  .value = "DUR",
	  .fallback = "5s",
	  .min = 1,
	  .max = 3600000,
	  .help = "how long to wait for the response" },
	{ 0 },
};

#ifdef PR_WITH_HTTP
#include <curl/curl.h>

static size_t keep(char *data, size_t size, size_t count, void *context)
{
	struct pr_buf *out = context;

	pr_buf_append(out, data, size * count);
	return out->failed ? 0 : size * count;
}

/* The whole URL: /healthz unless the user names a path. */
static const char *make_url(struct cli *cli)
{
	const char *url = cli->arg_count > 0 ? cli->args[0] : DEFAULT_URL;
	const char *start = strstr(url, "://");
	const char *path = strchr(start ? start + 3 : url, '/');
	size_t len = strlen(url);

	if (path && path[1])
		return url;
	return pr_arena_printf(&cli->memory, "%.*s/healthz", (int)(path ? len - 1 : len), url);
}

static CURLcode ask_server(CURL *curl, const char *url, const struct health_options *options,
			   struct curl_slist *headers, struct pr_buf *out)
{
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)options->timeout_ms);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
	return curl_easy_perform(curl);
}

/* A member of the response as text; NULL: it does not exist. */
static const char *health_member(struct cli *cli, struct pr_span object, const char *wanted)
{
	struct pr_json_members walk = pr_json_members(object);
	struct pr_span name, value;

	while (pr_json_next(&walk, &name, &value)) {
		PR_CLEANUP_BUF struct pr_buf text = { 0 };

		if (!pr_json_is(name, wanted) || pr_json_kind(value) != '"')
			continue;
		pr_json_decode(value, &text);
		return pr_arena_strdup(&cli->memory, pr_buf_text(&text));
	}
	return NULL;
}

static int report(struct cli *cli, const char *url, long code, struct pr_buf *answer)
{
	struct pr_span text = { pr_buf_text(answer), answer->len };
	bool json = pr_json_check(text.data, text.len, NULL) && pr_json_kind(text) == '{';
	const char *status = json ? health_member(cli, text, "\"status\"") : NULL;

	if (code == 401)
		return cli_fail(cli, "health: %s needs a token: set $POSTROOM_ADMIN_TOKEN", url);
	if (!status || (code != 200 && code != 503))
		return cli_fail(
			cli,
			"health: %s responded with status %ld, not like a postroom admin server",
			url, code);
	if (cli->global.json) {
		while (text.len > 0 && text.data[text.len - 1] == '\n')
			text.len--;
		pr_buf_append(&cli->out, text.data, text.len);
		pr_buf_putc(&cli->out, '\n');
	} else {
		cli_put_text(&cli->out, status);
		pr_buf_putc(&cli->out, '\n');
	}
	return code == 200 ? CLI_DONE : CLI_FAILED;
}

static int health_run(struct cli *cli, void *given)
{
	const char *token = getenv("POSTROOM_ADMIN_TOKEN"), *url = make_url(cli);
	PR_CLEANUP_BUF struct pr_buf answer = { .max = ANSWER_MAX };
	struct curl_slist *headers = NULL;
	CURL *curl = curl_easy_init();
	int status = CLI_FAILED;
	long code = 0;

	if (token && *token) {
		const char *line = pr_arena_printf(&cli->memory, "Authorization: Bearer %s", token);

		headers = line ? curl_slist_append(NULL, line) : NULL;
	}
	if (url && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
		status = cli_usage(cli,
				   "health: \"%.200s\" does not begin with http:// or https://, as "
				   "in " DEFAULT_URL,
				   cli->args[0]);
	} else if (!curl || !url) {
		status = cli_fail(cli, "out of memory");
	} else {
		CURLcode result = ask_server(curl, url, given, headers, &answer);

		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
		if (result == CURLE_OK)
			status = report(cli, url, code, &answer);
		else
			status = cli_fail(cli,
					  "health: %s: %s; does a relay run there with --admin?",
					  url, curl_easy_strerror(result));
	}
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	return status;
}
#else
static int health_run(struct cli *cli, void *given)
{
	(void)given;
	return cli_fail(cli, "health: this build has no HTTP client (-Dhttp=enabled)");
}
#endif

const struct cli_command cmd_health = {
	.name = "health",
	.synopsis = "[URL]",
	.summary = "Print the health of a relay",
	.about = "Reads /healthz of the admin server at URL (default " DEFAULT_URL
		 ") and prints healthy, degraded or unhealthy. --json also prints the reasons. "
		 "Exits 0 if the relay is healthy or degraded, and 1 if it is unhealthy or "
		 "unreachable. URL may name another path, such as /readyz. If the server requires "
		 "a token, set $POSTROOM_ADMIN_TOKEN.",
	.examples = "postroom health\n"
		    "postroom health http://127.0.0.1:8025/readyz\n"
		    "postroom health --json",
	.params = params,
	.options_size = sizeof(struct health_options),
	.max_args = 1,
	.run = health_run,
};
