/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many messages from NDJSON.
 *
 * 1. A transaction is a batch: --batch-size messages, or all of them. It is
 *    written whole or not at all, and a receipt is printed after its commit.
 * 2. Messages are collected before the transaction begins, so that no transaction
 *    waits for input. Only a batch larger than CHUNK_MAX is written in parts.
 * 3. Memory use does not depend on the size of the file: receipts of a large
 *    transaction are stored in a temporary file until its commit.
 */
#include "cli/enqueue.h"
#include "cli/ndjson.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_MAX 2000
#define SPOOL_AT ((size_t)1024 * 1024)

struct bulk {
	struct cli *cli;
	const struct enqueue_options *given;
	struct postroom_store *store;
	postroom_box *box;
	struct ndjson in;
	struct cli_progress progress;

	postroom_message *messages; /* collected, not yet written */
	postroom_receipt *receipts;
	int64_t *lines;
	size_t count;

	bool open;	    /* a transaction is open */
	int64_t open_count; /* messages in it */
	int64_t open_duplicates;

	int64_t written; /* committed, duplicates included */
	int64_t duplicates;
	int64_t written_line; /* all lines up to this one are committed */

	struct pr_buf waiting; /* receipts of the open transaction */
	FILE *spool;	       /* earlier receipts, in a temporary file */
	struct pr_err err;
};

static int begin_bulk(struct bulk *bulk)
{
	int status = bulk->open ? POSTROOM_OK : bulk->store->ops->begin(bulk->store, &bulk->err);

	bulk->open = status >= 0;
	return status;
}

static int spool_receipts(struct bulk *bulk)
{
	if (bulk->waiting.failed)
		return pr_err_nomem(&bulk->err);
	if (bulk->waiting.len < SPOOL_AT)
		return POSTROOM_OK;
	if (!bulk->spool)
		bulk->spool = tmpfile();
	if (!bulk->spool ||
	    fwrite(bulk->waiting.data, 1, bulk->waiting.len, bulk->spool) != bulk->waiting.len)
		return pr_err_errno(&bulk->err, POSTROOM_UNAVAILABLE,
				    "cannot write receipts to a temporary file");
	pr_buf_reset(&bulk->waiting);
	return POSTROOM_OK;
}

static bool print_spool(struct bulk *bulk)
{
	char piece[8192];
	size_t n;

	rewind(bulk->spool);
	while ((n = fread(piece, 1, sizeof(piece), bulk->spool)) > 0) {
		pr_buf_append(&bulk->cli->out, piece, n);
		if (!cli_flush_some(bulk->cli))
			return false;
	}
	rewind(bulk->spool);
	return ftruncate(fileno(bulk->spool), 0) == 0;
}

static bool print_receipts(struct bulk *bulk)
{
	if (!bulk->cli->global.json)
		return true;
	if (bulk->spool && !print_spool(bulk))
		return false;
	pr_buf_append(&bulk->cli->out, pr_buf_text(&bulk->waiting), bulk->waiting.len);
	pr_buf_reset(&bulk->waiting);
	return cli_flush(bulk->cli);
}

/* The library names a message by its index in the call; the user needs its line. */
static int name_line(struct bulk *bulk, int status)
{
	struct pr_err *err = &bulk->err;
	int64_t line = bulk->lines[0];

	pr_err_set(err, status, "%s", postroom_errmsg(bulk->box));
	for (size_t i = 0; status == POSTROOM_INVALID && i < bulk->count; i++) {
		line = bulk->lines[i];
		if (pr_message_check(&bulk->messages[i], (size_t)bulk->given->max_payload, err) < 0)
			break;
	}
	if (status == POSTROOM_INVALID)
		pr_err_prefix(err, "line %" PRId64, line);
	return status;
}

static int write_gathered(struct bulk *bulk)
{
	int status;

	if (bulk->count == 0) { /* only empty lines */
		ndjson_recycle(&bulk->in);
		return POSTROOM_OK;
	}
	status = begin_bulk(bulk);
	if (status < 0)
		return status;
	status = postroom_enqueue_many(bulk->box, bulk->messages, bulk->count, bulk->receipts);
	if (status < 0)
		return name_line(bulk, status);
	for (size_t i = 0; i < bulk->count; i++) {
		if (bulk->receipts[i].duplicate) {
			bulk->open_duplicates++;
			enqueue_log_duplicate(bulk->cli, &bulk->messages[i], &bulk->receipts[i]);
		}
		if (bulk->cli->global.json)
			enqueue_put_receipt(&bulk->waiting, &bulk->receipts[i]);
	}
	bulk->open_count += (int64_t)bulk->count;
	bulk->count = 0;
	ndjson_recycle(&bulk->in);
	return spool_receipts(bulk);
}

static int commit(struct bulk *bulk)
{
	int status = write_gathered(bulk);

	if (status < 0 || !bulk->open)
		return status;
	bulk->open = false;
	status = bulk->store->ops->end(bulk->store, status, &bulk->err);
	if (status < 0)
		return status;
	bulk->written += bulk->open_count;
	bulk->duplicates += bulk->open_duplicates;
	bulk->open_count = bulk->open_duplicates = 0;
	bulk->written_line = bulk->in.line;
	if (!print_receipts(bulk))
		return pr_err_set(&bulk->err, POSTROOM_UNAVAILABLE,
				  "cannot write to standard output: %s",
				  strerror(bulk->cli->out_errno));
	return POSTROOM_OK;
}

static int work_bulk(struct bulk *bulk)
{
	int result = NDJSON_MESSAGE;

	while (result != NDJSON_END) {
		int status = POSTROOM_OK;

		result = ndjson_next(&bulk->in, &bulk->messages[bulk->count], &bulk->err);
		if (result < 0)
			return result;
		if (result == NDJSON_MESSAGE)
			bulk->lines[bulk->count++] = bulk->in.line;
		int64_t batch = bulk->open_count + (int64_t)bulk->count;
		bool whole = !bulk->given->atomic && batch == bulk->given->batch_size;
		if (whole || result == NDJSON_END)
			status = commit(bulk);
		else if (bulk->count == CHUNK_MAX || result == NDJSON_FULL)
			status = write_gathered(bulk);
		if (status < 0)
			return status;
		if (bulk->count == 0)
			cli_progress_show(&bulk->progress, bulk->in.read,
					  bulk->written + bulk->open_count);
	}
	return POSTROOM_OK;
}

static int report_failure(struct bulk *bulk)
{
	const char *file = strcmp(bulk->given->ndjson, "-") == 0 ? "stdin" : bulk->given->ndjson;
	char written[200] = "nothing was written";

	if (bulk->open)
		bulk->store->ops->end(bulk->store, bulk->err.status, &bulk->err);
	if (bulk->written > 0)
		snprintf(written, sizeof(written),
			 "the lines up to line %" PRId64 " were written (messages: %" PRId64
			 ", duplicates: %" PRId64 "), nothing after them",
			 bulk->written_line, bulk->written - bulk->duplicates, bulk->duplicates);
	return cli_fail(bulk->cli, "enqueue: %s: %s; %s", file, bulk->err.text, written);
}

static int report_success(struct bulk *bulk)
{
	struct cli *cli = bulk->cli;

	if (cli->global.json)
		return CLI_DONE;
	cli->out_context = "enqueue: all messages were written";
	cli_put_messages(cli, bulk->written - bulk->duplicates, "");
	pr_buf_puts(&cli->out, " enqueued");
	if (bulk->duplicates > 0)
		pr_buf_printf(&cli->out, ", %" PRId64 " duplicate%s left out", bulk->duplicates,
			      bulk->duplicates == 1 ? "" : "s");
	pr_buf_putc(&cli->out, '\n');
	return CLI_DONE;
}

static int open_input(struct cli *cli, const char *file, int *ret, int64_t *ret_size)
{
	struct stat stat;

	*ret = strcmp(file, "-") == 0 ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	if (*ret < 0)
		return cli_fail(
			cli, "enqueue: cannot open \"%s\": %s; check its path, or give - for stdin",
			file, strerror(errno));
	*ret_size = fstat(*ret, &stat) == 0 && S_ISREG(stat.st_mode) ? stat.st_size : 0;
	return CLI_DONE;
}

static void release(struct bulk *bulk)
{
	ndjson_release(&bulk->in);
	free(bulk->messages);
	free(bulk->receipts);
	free(bulk->lines);
	pr_buf_release(&bulk->waiting);
	if (bulk->spool)
		fclose(bulk->spool);
}

static int prepare_bulk(struct bulk *bulk, int fd)
{
	bulk->messages = calloc(CHUNK_MAX, sizeof(*bulk->messages));
	bulk->receipts = calloc(CHUNK_MAX, sizeof(*bulk->receipts));
	bulk->lines = calloc(CHUNK_MAX, sizeof(*bulk->lines));
	if (!bulk->messages || !bulk->receipts || !bulk->lines)
		return pr_err_nomem(&bulk->err);
	return ndjson_open(&bulk->in, fd, (size_t)bulk->given->max_payload, &bulk->err);
}

int enqueue_bulk(struct cli *cli, const struct enqueue_options *options)
{
	struct bulk bulk = { .cli = cli, .given = options };
	int64_t size = 0;
	int fd = -1;
	int status = open_input(cli, options->ndjson, &fd, &size);

	if (status == CLI_DONE)
		status = enqueue_open(cli, options, &bulk.store);
	if (status == CLI_DONE) {
		bulk.box = bulk.store->ops->box(bulk.store);
		cli_progress_begin(&bulk.progress, cli, "enqueue", size);
		status = prepare_bulk(&bulk, fd);
		if (status >= 0)
			status = work_bulk(&bulk);
		cli_progress_end(&bulk.progress);
		status = status < 0 ? report_failure(&bulk) : report_success(&bulk);
	}
	release(&bulk);
	pr_store_close(bulk.store);
	if (fd > STDIN_FILENO)
		close(fd);
	return status;
}
