/* SPDX-License-Identifier: Apache-2.0 */
/* All statements of an adoption, with the locks that they take. */
#include "adopt/sqlite/sqlite.h"

#include <string.h>

struct explanation {
	const struct pr_adopt *adopt;
	pr_adopt_text_fn fn;
	void *context;
	struct pr_buf sql;
	bool failed;
};

static void begin_statement(struct explanation *out, const char *locks)
{
	pr_buf_reset(&out->sql);
	pr_buf_printf(&out->sql, "-- locks: %s\n", locks);
}

static void end_statement(struct explanation *out)
{
	pr_buf_puts(&out->sql, ";\n");
	out->failed = out->failed || out->sql.failed;
	if (!out->failed)
		out->fn(out->context, out->sql.data);
}

static void explain_functions(struct explanation *out)
{
	begin_statement(out, "none");
	pr_buf_printf(&out->sql, "SET lock_timeout = '%dms'", ADOPT_LOCK_MS);
	end_statement(out);
	begin_statement(out, "none");
	pr_buf_puts(&out->sql, ADOPT_DDL_TIMEOUT);
	end_statement(out);
	begin_statement(out, "none on your tables");
	pr_adopt_put_state_table(out->adopt, &out->sql);
	end_statement(out);
	begin_statement(out, "none on your tables");
	pr_adopt_put_rejects_table(out->adopt, &out->sql);
	end_statement(out);
	begin_statement(out, "none on your tables");
	pr_adopt_put_function(out->adopt, false, &out->sql);
	end_statement(out);
	if (!pr_adopt_has_marker(out->adopt))
		return;
	begin_statement(out, "none on your tables");
	pr_adopt_put_function(out->adopt, true, &out->sql);
	end_statement(out);
}

static void explain_triggers(struct explanation *out)
{
	static const char locks[] =
		"SHARE ROW EXCLUSIVE on this table: waits for its writers, and writers wait for it, "
		"until lock_timeout at most; retried";

	for (size_t i = 0; i < out->adopt->target_count; i++) {
		const struct pr_adopt_target *target = &out->adopt->targets[i];

		begin_statement(out, locks);
		pr_adopt_put_trigger(out->adopt, target, false, &out->sql);
		end_statement(out);
		if (!target->has_rows || !pr_adopt_has_marker(out->adopt))
			continue;
		begin_statement(out, locks);
		pr_adopt_put_trigger(out->adopt, target, true, &out->sql);
		end_statement(out);
	}
}

static void explain_backlog(struct explanation *out, int64_t chunk)
{
	begin_statement(out, "none");
	pr_buf_puts(&out->sql, ADOPT_NO_TIMEOUT);
	end_statement(out);
	begin_statement(out, "ACCESS SHARE on the table: blocks no reader and no writer");
	pr_adopt_put_work(out->adopt, false, &out->sql);
	end_statement(out);
	begin_statement(out, "ROW EXCLUSIVE on the table, and the rows of one chunk; locked rows are "
			     "skipped");
	pr_buf_printf(&out->sql, "-- repeated for each chunk of %lld rows at most; $1 and $2 are its "
				 "first and last position\n",
		      (long long)chunk);
	pr_adopt_put_move(out->adopt, &out->sql);
	end_statement(out);
}

int pr_adopt_explain(struct pr_adopt *adopt, int64_t chunk, pr_adopt_text_fn fn, void *context,
		     struct pr_err *err)
{
	struct explanation out = { .adopt = adopt, .fn = fn, .context = context };

	if (adopt->store->ops->embedded)
		return pr_adopt_sqlite_explain(adopt, chunk, fn, context, err);
	explain_functions(&out);
	explain_triggers(&out);
	if (adopt->done != PR_ADOPT_NONE)
		explain_backlog(&out, chunk);
	pr_buf_release(&out.sql);
	return out.failed ? pr_err_nomem(err) : POSTROOM_OK;
}
