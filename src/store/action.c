/* SPDX-License-Identifier: Apache-2.0 */
#include "store/action.h"

#include "base/time.h"

static void put(struct pr_buf *out, const char *name, const char *value)
{
	if (value)
		pr_buf_printf(out, " %s=%s", name, value);
}

static void put_time(struct pr_buf *out, const char *name, int64_t us)
{
	char text[PR_RFC3339_SIZE];

	if (us > 0) {
		pr_rfc3339(us, text);
		put(out, name, text);
	}
}

void pr_filter_text(const postroom_filter *filter, struct pr_buf *out)
{
	char age[PR_DURATION_SIZE];

	pr_buf_puts(out, filter->table == POSTROOM_INBOX ? "table=inbox" : "table=outbox");
	put(out, "status", filter->status);
	put(out, "handler", filter->handler);
	put(out, "id", filter->id);
	put(out, "namespace", filter->ns);
	put(out, "topic", filter->topic);
	put(out, "tenant", filter->tenant_id);
	put(out, "key", filter->key);
	put(out, "error", filter->error);
	put(out, "fingerprint", filter->fingerprint);
	put(out, "sink", filter->sink && !*filter->sink ? PR_NONE : filter->sink);
	put_time(out, "since", filter->created_from_us);
	put_time(out, "until", filter->created_to_us);
	if (filter->older_than_ms > 0) {
		pr_duration_format(filter->older_than_ms, age);
		put(out, "older_than", age);
	}
}

void pr_log_action_on(struct pr_log *log, const char *action, const char *text, int64_t count,
		      const char *actor)
{
	pr_log_event(log, PR_LOG_INFO, "OUTBOX_OPERATOR_ACTION");
	pr_log_str(log, "action", action);
	pr_log_str(log, "filter", text);
	pr_log_int(log, "count", count);
	pr_log_str(log, "actor", actor);
	pr_log_end(log);
	pr_log_flush(log);
}

void pr_log_action(struct pr_log *log, const char *action, const postroom_filter *filter,
		   int64_t count, const char *actor)
{
	PR_CLEANUP_BUF struct pr_buf text = { 0 };

	pr_filter_text(filter, &text);
	pr_log_action_on(log, action, pr_buf_text(&text), count, actor);
}
