/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/json.h"

#include <string.h>

void cli_put_body_member(struct pr_buf *out, const void *body, size_t len)
{
	if (body) {
		cli_put_json_member(out, "body_base64", "", 0);
		pr_json_put_base64(out, body, len);
	} else {
		cli_put_member(out, "body_base64", NULL);
	}
}

void cli_put_progress_members(struct pr_buf *out, const postroom_row *row)
{
	cli_put_int_member(out, "attempts", row->attempts);
	cli_put_int_member(out, "claims", row->claims);
	cli_put_time_member(out, "next_attempt_at", row->next_attempt_at_us);
	cli_put_member(out, "locked_by", row->locked_by);
	cli_put_time_member(out, "locked_until", row->locked_until_us);
	cli_put_time_member(out, "last_attempt_at", row->last_attempt_at_us);
	cli_put_member(out, "last_error", row->last_error);
	cli_put_time_member(out, "created_at", row->created_at_us);
	cli_put_time_member(out, "updated_at", row->updated_at_us);
}

void cli_put_progress_fields(struct cli *cli, const postroom_row *row)
{
	bool waiting = strcmp(row->status, "pending") == 0;

	cli_put_field(cli, "content_type", row->content_type);
	cli_put_field(cli, "headers", row->headers);
	cli_put_number_field(cli, "attempts", row->attempts);
	cli_put_time_field(cli, "created_at", row->created_at_us);
	cli_put_time_field(cli, "next_attempt_at", waiting ? row->next_attempt_at_us : 0);
	cli_put_time_field(cli, "last_attempt_at", row->last_attempt_at_us);
	cli_put_field(cli, "last_error", row->last_error);
	cli_put_field(cli, "locked_by", row->locked_by);
	cli_put_time_field(cli, "locked_until", row->locked_until_us);
}

const char *cli_format_age(int64_t age_us, char out[PR_DURATION_SIZE])
{
	int64_t ms = age_us / 1000;

	if (age_us < 0)
		return "-";
	/* Omits the milliseconds of long durations. */
	if (ms >= 10000)
		ms -= ms % 1000;
	if (ms >= 600000)
		ms -= ms % 60000;
	pr_duration_format(ms, out);
	return out;
}

void cli_put_row_members(struct pr_buf *out, const postroom_row *row)
{
	cli_put_member(out, "id", row->id);
	cli_put_int_member(out, "seq", row->seq);
	cli_put_member(out, "namespace", row->ns);
	cli_put_member(out, "topic", row->topic);
	cli_put_member(out, "tenant_id", row->tenant_id);
	cli_put_member(out, "key", row->key);
	cli_put_member(out, "dedupe_key", row->dedupe_key);
	cli_put_member(out, "correlation_id", row->correlation_id);
	cli_put_json_member(out, "payload", row->payload, row->payload_len);
	cli_put_body_member(out, row->body, row->body_len);
	cli_put_member(out, "content_type", row->content_type);
	cli_put_json_member(out, "headers", row->headers, strlen(row->headers));
	cli_put_member(out, "status", row->status);
	cli_put_progress_members(out, row);
	cli_put_time_member(out, "delivered_at", row->delivered_at_us);
}

void cli_put_row(struct pr_buf *out, const postroom_row *row)
{
	pr_buf_putc(out, '{');
	cli_put_row_members(out, row);
	pr_buf_puts(out, "}\n");
}
