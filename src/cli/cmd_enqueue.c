/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/enqueue.h"

#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPTION(member) offsetof(struct enqueue_options, member)
#define READ_SIZE ((size_t)64 * 1024)

static const struct pr_param params[] = {
	{ .name = "namespace",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(ns),
	  .value = "NAME",
	  .help = "namespace (default: default)" },
	{ .name = "tenant",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(tenant),
	  .value = "UUID",
	  .help = "the tenant of the message" },
	{ .name = "key",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(key),
	  .value = "KEY",
	  .help = "ordering key: messages of the same topic and key are delivered in order" },
	{ .name = "dedupe-key",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(dedupe_key),
	  .value = "KEY",
	  .help = "a second message with this key is a duplicate; with --tenant, the key must "
		  "begin with TENANT/" },
	{ .name = "idempotency-key",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(idempotency_key),
	  .value = "KEY",
	  .help = "like --dedupe-key, but TENANT/ is added in front" },
	{ .name = "identity",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(identity),
	  .value = "PARTS",
	  .help = "CATEGORY:ENTITY:KIND[:VERSION]: derive the idempotency key from these parts and "
		  "the tenant, like `postroom key`; if ENTITY contains a ':', VERSION is "
		  "required" },
	{ .name = "correlation-id",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(correlation_id),
	  .value = "ID",
	  .help = "id that is passed on with the message" },
	{ .name = "header",
	  .type = PR_PARAM_LIST,
	  .offset = OPTION(headers),
	  .value = "NAME=VALUE",
	  .help = "add a header; may be repeated" },
	{ .name = "content-type",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(content_type),
	  .value = "TYPE",
	  .help = "type of the payload or body (default: application/json, or "
		  "application/octet-stream for a body)" },
	{ .name = "body-file",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(body_file),
	  .value = "FILE",
	  .help = "read a binary body instead of a payload; - reads stdin" },
	{ .name = "delay",
	  .type = PR_PARAM_DURATION,
	  .offset = OPTION(delay_ms),
	  .value = "DUR",
	  .max = POSTROOM_DELAY_MAX_MS,
	  .help = "do not deliver the message before this time has passed" },
	{ .name = "priority",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(priority),
	  .value = "SECONDS",
	  .max = POSTROOM_PRIORITY_MAX,
	  .help = "head start over messages without one" },
	{ .name = "max-payload",
	  .type = PR_PARAM_SIZE,
	  .offset = OPTION(max_payload),
	  .value = "SIZE",
	  .fallback = "1M",
	  .min = 1,
	  .max = POSTROOM_PAYLOAD_MAX,
	  .help = "maximum size of a payload or body" },
	{ .name = "ndjson",
	  .type = PR_PARAM_STRING,
	  .offset = OPTION(ndjson),
	  .value = "FILE",
	  .help = "enqueue many messages: one JSON object per line, with members named like the "
		  "columns (topic, payload, key, headers, body_base64, delay, …); - reads stdin" },
	{ .name = "batch-size",
	  .type = PR_PARAM_INT,
	  .offset = OPTION(batch_size),
	  .value = "N",
	  .fallback = "1000",
	  .min = 1,
	  .max = INT32_MAX,
	  .help = "with --ndjson: messages per transaction" },
	{ .name = "atomic",
	  .type = PR_PARAM_FLAG,
	  .offset = OPTION(atomic),
	  .help = "with --ndjson: enqueue all messages in one transaction" },
	{ 0 },
};

void enqueue_log_duplicate(struct cli *cli, const postroom_message *message,
			   const postroom_receipt *receipt)
{
	enum pr_log_level level = receipt->differs ? PR_LOG_WARN : PR_LOG_INFO;

	pr_log_event(&cli->log, level, "OUTBOX_WORKER_DUPLICATE");
	pr_log_str(&cli->log, "tenant", message->tenant_id);
	pr_log_str(&cli->log, "key", receipt->dedupe_key);
	if (receipt->differs)
		pr_log_str(&cli->log, "differs", "yes");
	pr_log_end(&cli->log);
}

void enqueue_put_receipt(struct pr_buf *out, const postroom_receipt *receipt)
{
	const char *key = *receipt->dedupe_key ? receipt->dedupe_key : NULL;

	pr_buf_printf(out, "{\"id\":\"%s\"", receipt->id);
	cli_put_member(out, "dedupe_key", key);
	pr_buf_puts(out, receipt->duplicate ? ",\"duplicate\":true}\n" : ",\"duplicate\":false}\n");
}

static int refuse_size(struct cli *cli, const char *subject, size_t max)
{
	return cli_fail(cli,
			"enqueue: the %s is larger than the maximum of %zu bytes; "
			"--max-payload allows more, up to 64M",
			subject, max);
}

/* Reads to the end, but at most max + 1 bytes. */
static int read_content(struct cli *cli, int fd, const char *subject, size_t max,
			struct pr_buf *out)
{
	ssize_t n = 1;

	while (n != 0 && out->len <= max) {
		size_t room = max + 1 - out->len < READ_SIZE ? max + 1 - out->len : READ_SIZE;
		char *to = pr_buf_reserve(out, room);

		if (!to)
			return cli_fail(cli, "enqueue: no memory for the %s", subject);
		n = read(fd, to, room);
		if (n < 0 && errno != EINTR)
			return cli_fail(cli, "enqueue: cannot read the %s: %s; give a file",
					subject, strerror(errno));
		out->len += n > 0 ? (size_t)n : 0;
	}
	return out->len > max ? refuse_size(cli, subject, max) : CLI_DONE;
}

static int read_payload(struct cli *cli, const struct enqueue_options *given,
			struct pr_buf *content, postroom_message *message)
{
	const char *text = cli->arg_count > 1 ? cli->args[1] : "-";
	int status;

	if (strcmp(text, "-") != 0) {
		message->payload = text;
		return strlen(text) > (size_t)given->max_payload
			       ? refuse_size(cli, "payload", (size_t)given->max_payload)
			       : CLI_DONE;
	}
	if (isatty(STDIN_FILENO) && cli->err_terminal)
		dprintf(STDERR_FILENO, "payload (JSON, then Ctrl-D): ");
	status = read_content(cli, STDIN_FILENO, "payload", (size_t)given->max_payload, content);
	if (status != CLI_DONE)
		return status;
	/* Removes the newline that echo and editors append. */
	if (content->len > 0 && content->data[content->len - 1] == '\n')
		content->len--;
	if (content->len == 0)
		return cli_fail(cli, "enqueue: the payload is empty; give JSON as an argument or "
				     "on stdin");
	message->payload = content->data;
	message->payload_len = content->len;
	return CLI_DONE;
}

static int read_body(struct cli *cli, const struct enqueue_options *given, struct pr_buf *content,
		     postroom_message *message)
{
	bool from_stdin = strcmp(given->body_file, "-") == 0;
	int fd = from_stdin ? STDIN_FILENO : open(given->body_file, O_RDONLY | O_CLOEXEC);
	int status;

	if (cli->arg_count > 1)
		return cli_usage(cli, "enqueue: a PAYLOAD and --body-file exclude each other");
	if (fd < 0)
		return cli_fail(cli, "enqueue: cannot open the body \"%s\": %s; check its path",
				given->body_file, strerror(errno));
	status = read_content(cli, fd, "body", (size_t)given->max_payload, content);
	if (!from_stdin)
		close(fd);
	message->body = pr_buf_text(content);
	message->body_len = content->len;
	return status;
}

static bool has_header(const struct pr_param_list *list, size_t before, const char *name,
		       size_t len)
{
	for (size_t i = 0; i < before; i++) {
		if (strncmp(list->items[i], name, len) == 0 && list->items[i][len] == '=')
			return true;
	}
	return false;
}

static int build_headers(struct cli *cli, const struct pr_param_list *list, struct pr_buf *out)
{
	pr_buf_putc(out, '{');
	for (size_t i = 0; i < list->count; i++) {
		const char *header = list->items[i];
		size_t len = strcspn(header, "=");

		if (len == 0 || header[len] != '=')
			return cli_usage(cli, "--header takes NAME=VALUE, not \"%s\"", header);
		if (has_header(list, i, header, len))
			return cli_usage(cli, "--header %.*s is given twice", (int)len, header);
		if (!pr_utf8_valid(header, strlen(header)))
			return cli_fail(cli, "enqueue: header %.*s is not valid UTF-8", (int)len,
					header);
		pr_buf_puts(out, i > 0 ? "," : "");
		pr_json_put_stringn(out, header, len);
		pr_buf_putc(out, ':');
		pr_json_put_string(out, header + len + 1);
	}
	pr_buf_putc(out, '}');
	return out->failed ? cli_fail(cli, "enqueue: no memory for the headers") : CLI_DONE;
}

/*
 * CATEGORY:ENTITY:KIND[:VERSION], where ENTITY may contain colons: with three
 * parts there is no version; with more, the last two are KIND and VERSION.
 */
static int make_identity(struct cli *cli, const char *tenant, char *parts,
			 char out[POSTROOM_ID_SIZE])
{
	char *entity = strchr(parts, ':');
	char *last = strrchr(parts, ':');
	char *kind = last, *version = NULL;

	if (!entity || entity == last)
		return cli_usage(cli, "--identity takes CATEGORY:ENTITY:KIND[:VERSION], not \"%s\"",
				 parts);
	*last = '\0';
	if (strrchr(parts, ':') > entity) {
		kind = strrchr(parts, ':');
		*kind = '\0';
		version = last + 1;
	}
	*entity = '\0';
	if (postroom_key(tenant ? tenant : "", parts, entity + 1, kind + 1, version, out) < 0)
		return cli_fail(cli, "enqueue: --identity or --tenant is not valid UTF-8, or the "
				     "tenant contains a ':'");
	return CLI_DONE;
}

static int choose_key(struct cli *cli, const struct enqueue_options *given,
		      postroom_message *message, char identity[POSTROOM_ID_SIZE])
{
	int count = !!given->dedupe_key + !!given->idempotency_key + !!given->identity;
	char *parts;
	int status;

	message->dedupe_key = given->dedupe_key;
	message->idempotency_key = given->idempotency_key;
	if (count > 1)
		return cli_usage(cli, "enqueue: --dedupe-key, --idempotency-key and --identity "
				      "exclude each other");
	if (!given->identity)
		return CLI_DONE;
	parts = strdup(given->identity);
	if (!parts)
		return cli_fail(cli, "enqueue: no memory");
	status = make_identity(cli, given->tenant, parts, identity);
	free(parts);
	message->idempotency_key = identity;
	return status;
}

static int write_message(struct cli *cli, struct postroom_store *store,
			 const postroom_message *message)
{
	postroom_box *box = store->ops->box(store);
	postroom_receipt receipt;
	struct pr_err err = { 0 };
	int status = store->ops->begin(store, &err);

	if (status < 0)
		return cli_fail(cli, "enqueue: %s", err.text);
	status = postroom_enqueue(box, message, &receipt);
	if (status < 0) {
		store->ops->end(store, status, &err);
		return cli_fail(cli, "%s", postroom_errmsg(box));
	}
	if (store->ops->end(store, status, &err) < 0)
		return cli_fail(cli, "enqueue: %s", err.text);
	cli->out_context = "enqueue: the message was written";
	if (receipt.duplicate)
		enqueue_log_duplicate(cli, message, &receipt);
	if (cli->global.json)
		enqueue_put_receipt(&cli->out, &receipt);
	else
		pr_buf_printf(&cli->out, "%s%s\n", receipt.id,
			      receipt.duplicate && cli->out_terminal
				      ? "  (a duplicate: this is the first one's id)"
				      : "");
	return CLI_DONE;
}

int enqueue_open(struct cli *cli, const struct enqueue_options *given, struct postroom_store **ret)
{
	int status = cli_open_store(cli, CLI_OPEN_CREATE, ret);
	postroom_box *box = status == CLI_DONE ? (*ret)->ops->box(*ret) : NULL;

	if (status != CLI_DONE)
		return status;
	if (!box)
		return cli_fail(cli, "enqueue: no memory");
	postroom_box_set_max_payload(box, (size_t)given->max_payload);
	return CLI_DONE;
}

/* Checks the message first, so that an invalid one does not create a database. */
static int check_enqueue(struct cli *cli, const struct enqueue_options *given,
			 const postroom_message *message)
{
	struct pr_err err;

	if (pr_message_check(message, (size_t)given->max_payload, &err) < 0)
		return cli_fail(cli, "enqueue: %s", err.text);
	return CLI_DONE;
}

static int enqueue_one(struct cli *cli, const struct enqueue_options *given)
{
	PR_CLEANUP_BUF struct pr_buf content = { 0 };
	PR_CLEANUP_BUF struct pr_buf headers = { 0 };
	struct postroom_store *store = NULL;
	char identity[POSTROOM_ID_SIZE];
	postroom_message message = {
		.size = sizeof(message),
		.topic = cli->args[0],
		.ns = given->ns,
		.tenant_id = given->tenant,
		.key = given->key,
		.correlation_id = given->correlation_id,
		.content_type = given->content_type,
		.delay_ms = given->delay_ms,
		.priority = (int32_t)given->priority,
	};
	int status = choose_key(cli, given, &message, identity);

	if (status == CLI_DONE)
		status = build_headers(cli, &given->headers, &headers);
	if (status == CLI_DONE && given->body_file)
		status = read_body(cli, given, &content, &message);
	else if (status == CLI_DONE)
		status = read_payload(cli, given, &content, &message);
	message.headers = headers.data;
	if (status == CLI_DONE)
		status = check_enqueue(cli, given, &message);
	if (status == CLI_DONE)
		status = enqueue_open(cli, given, &store);
	if (status == CLI_DONE)
		status = write_message(cli, store, &message);
	pr_store_close(store);
	return status;
}

static int enqueue_file(struct cli *cli, const struct enqueue_options *given)
{
	if (cli->arg_count > 0)
		return cli_usage(
			cli, "enqueue: with --ndjson, TOPIC and PAYLOAD are members of each line");
	if (given->ns || given->tenant || given->key || given->dedupe_key ||
	    given->idempotency_key || given->identity || given->correlation_id ||
	    given->headers.count > 0 || given->content_type || given->body_file ||
	    given->delay_ms > 0 || given->priority > 0)
		return cli_usage(
			cli,
			"enqueue: with --ndjson, put the properties of a message into its line");
	return enqueue_bulk(cli, given);
}

static int enqueue_run(struct cli *cli, void *options)
{
	const struct enqueue_options *given = options;

	if (given->ndjson)
		return enqueue_file(cli, given);
	if (cli->arg_count == 0)
		return cli_usage(cli,
				 "enqueue: the TOPIC is missing: postroom enqueue TOPIC [PAYLOAD]");
	return enqueue_one(cli, given);
}

const struct cli_command cmd_enqueue = {
	.name = "enqueue",
	.synopsis = "TOPIC [PAYLOAD]\n--ndjson FILE",
	.summary = "Write one message, or a file of messages, into the outbox",
	.about = "PAYLOAD is JSON; without it, or with -, it is read from stdin. Prints the id of "
		 "the message; for a duplicate, the id of the first message. Creates the database "
		 "if it does not exist.\n\nWith --ndjson, an invalid line ends the run: its "
		 "transaction is rolled back, earlier transactions stay, and the error names the "
		 "lines that were written.",
	.examples = "postroom enqueue orders.created '{\"order\": 17}' --key 17\n"
		    "postroom enqueue mail.send --delay 10m --header trace=abc < mail.json\n"
		    "postroom enqueue scans --body-file page.png --content-type image/png\n"
		    "postroom enqueue --ndjson orders.ndjson --atomic",
	.params = params,
	.options_size = sizeof(struct enqueue_options),
	.max_args = 2,
	.run = enqueue_run,
};
