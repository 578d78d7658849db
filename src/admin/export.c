/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports of any size. The thread of the store writes one part, the thread that serves sends it
 * and asks for the next.
 *
 * 1. One part is in memory at a time: PART_BYTES and the row that reached it.
 * 2. Parts continue after the position of the last row of the one before: no transaction stays
 *    open for a client that reads slowly, and that row may be deleted meanwhile.
 */
#include "admin/server.h"

#include "base/time.h"
#include "store/position.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES ((size_t)128 * 1024)
#define PART_ROWS 500
/* With their content rows may be large, and a store may read all rows of a part at once. */
#define WHOLE_ROWS_FIRST 8
#define WHOLE_ROWS_MAX 100
#define DEFAULT_ROWS 100000

struct pr_admin_export {
	struct pr_buf part;
	size_t sent;			  /* of the part */
	int64_t left;			  /* rows that may still come */
	int64_t rows;			  /* of the next part */
	char after[PR_ROW_POSITION_SIZE]; /* of the last row; "": none yet */
	bool inbox, csv, shown;
	bool last; /* no part comes after this one */
	bool failed;
};

static void put_csv_text(struct pr_buf *out, const char *text)
{
	bool formula = text && *text && strchr("=+-@\t\r", *text);

	if (!text)
		return;
	pr_buf_putc(out, '"');
	/* A spreadsheet would run it. */
	if (formula)
		pr_buf_putc(out, '\'');
	while (*text) {
		size_t len = strcspn(text, "\"");

		pr_buf_append_utf8(out, text, len);
		text += len;
		if (*text) {
			pr_buf_puts(out, "\"\"");
			text++;
		}
	}
	pr_buf_putc(out, '"');
}

static void put_csv_time(struct pr_buf *out, int64_t time_us)
{
	char text[PR_RFC3339_SIZE] = "";

	if (time_us)
		pr_rfc3339(time_us, text);
	pr_buf_printf(out, ",%s", text);
}

#define CSV_HEAD                                                                                   \
	"id,seq,%s,topic,tenant_id,key,correlation_id,status,attempts,next_attempt_at,"            \
	"last_attempt_at,created_at,updated_at,%s,last_error\r\n"

static void put_csv_row(struct pr_buf *out, const postroom_row *row, bool inbox)
{
	const char *const texts[] = { inbox ? row->handler : row->ns, row->topic, row->tenant_id,
				      row->key, row->correlation_id };

	put_csv_text(out, row->id);
	pr_buf_printf(out, ",%" PRId64, row->seq);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		pr_buf_putc(out, ',');
		put_csv_text(out, texts[i]);
	}
	pr_buf_printf(out, ",%s,%" PRId32, row->status, row->attempts);
	put_csv_time(out, row->next_attempt_at_us);
	put_csv_time(out, row->last_attempt_at_us);
	put_csv_time(out, row->created_at_us);
	put_csv_time(out, row->updated_at_us);
	put_csv_time(out, inbox ? row->processed_at_us : row->delivered_at_us);
	pr_buf_putc(out, ',');
	put_csv_text(out, row->last_error);
	pr_buf_puts(out, "\r\n");
}

static void put_json_row(struct pr_admin_export *export, const postroom_row *row)
{
	struct pr_buf *out = &export->part;

	pr_buf_putc(out, '{');
	pr_put_row_columns(out, row, export->inbox);
	pr_put_row_content(out, row, export->inbox, export->shown);
	pr_buf_puts(out, "}\n");
}

struct part {
	struct pr_admin_export *export;
	int64_t rows;
};

static int put_row(void *context, const postroom_row *row)
{
	struct part *part = context;
	struct pr_admin_export *export = part->export;

	if (export->csv)
		put_csv_row(&export->part, row, export->inbox);
	else
		put_json_row(export, row);
	pr_row_position(row, export->after);
	part->rows++;
	export->left--;
	return export->part.len >= PART_BYTES || export->part.failed;
}

/* As many rows of this size as fill a part. */
static int64_t fitting_rows(size_t bytes)
{
	int64_t rows = (int64_t)(PART_BYTES / (bytes + 1));

	return rows < 1 ? 1 : rows > WHOLE_ROWS_MAX ? WHOLE_ROWS_MAX : rows;
}

void pr_export_continue(struct pr_admin_request *request)
{
	struct pr_admin_export *export = request->export;
	postroom_store *store = pr_database_store(request);
	postroom_filter filter = pr_request_filter(request);
	struct part part = { .export = export };
	int64_t rows = export->rows;

	export->failed = !store;
	if (!store)
		return;
	if (rows > export->left)
		rows = export->left;
	filter.brief = export->csv;
	filter.after = *export->after ? export->after : NULL;
	if (postroom_list(store, &filter, (int32_t)rows, put_row, &part) < 0) {
		export->failed = true;
		pr_request_fail(request, &store->err);
		return;
	}
	if (!export->csv && part.rows > 0)
		export->rows = fitting_rows(export->part.len / (size_t)part.rows);
	export->failed = export->part.failed;
	export->last = export->left == 0 || (part.rows < rows && export->part.len < PART_BYTES);
}

void pr_api_export(struct pr_admin_request *request)
{
	struct pr_admin_export *export = calloc(1, sizeof(*export));

	request->export = export;
	if (!export) {
		pr_request_refuse(request, 503, "no_memory", "out of memory");
		return;
	}
	export->left = request->query.limit ? request->query.limit : DEFAULT_ROWS;
	export->inbox = request->route->flags & PR_ROUTE_INBOX;
	export->csv = request->route->flags & PR_ROUTE_CSV;
	export->rows = export->csv ? PART_ROWS : WHOLE_ROWS_FIRST;
	export->shown = pr_access_shows_payloads(request);
	if (export->csv)
		pr_buf_printf(&export->part, CSV_HEAD, export->inbox ? "handler" : "namespace",
			      export->inbox ? "processed_at" : "delivered_at");
	pr_export_continue(request);
	if (export->failed) {
		pr_export_free(export);
		request->export = NULL;
		return;
	}
	request->answer.code = 200;
	request->answer.type = export->csv ? "text/csv; charset=utf-8; header=present"
					   : "application/x-ndjson";
	request->answer.filename = export->inbox ? export->csv
							   ? "attachment; filename=\"inbox.csv\""
							   : "attachment; filename=\"inbox.ndjson\""
				   : export->csv ? "attachment; filename=\"outbox.csv\""
						 : "attachment; filename=\"outbox.ndjson\"";
}

ssize_t pr_export_read(struct pr_admin_request *request, char *out, size_t size)
{
	struct pr_admin_export *export = request->export;
	size_t rest = export->part.len - export->sent;

	if (export->failed)
		return PR_EXPORT_FAILED;
	if (rest > 0) {
		if (rest > size)
			rest = size;
		memcpy(out, export->part.data + export->sent, rest);
		export->sent += rest;
		return (ssize_t)rest;
	}
	if (export->last)
		return PR_EXPORT_END;
	pr_buf_reset(&export->part);
	export->sent = 0;
	return pr_queue_submit(&request->admin->database.queue, request) ? 0 : PR_EXPORT_FAILED;
}

void pr_export_free(struct pr_admin_export *export)
{
	if (!export)
		return;
	pr_buf_release(&export->part);
	free(export);
}
