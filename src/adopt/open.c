/* SPDX-License-Identifier: Apache-2.0 */
/* The mapping: what the operator says, then an earlier adoption, the preset and the dictionary. */
#include "adopt/sqlite/sqlite.h"

#include <string.h>

const char *const pr_adopt_part_names[PR_ADOPT_PARTS + 1] = {
	[PR_ADOPT_ID] = "id",
	[PR_ADOPT_NAMESPACE] = "namespace",
	[PR_ADOPT_TOPIC] = "topic",
	[PR_ADOPT_TENANT] = "tenant_id",
	[PR_ADOPT_KEY] = "key",
	[PR_ADOPT_DEDUPE] = "dedupe_key",
	[PR_ADOPT_CORRELATION] = "correlation_id",
	[PR_ADOPT_PAYLOAD] = "payload",
	[PR_ADOPT_BODY] = "body",
	[PR_ADOPT_CONTENT_TYPE] = "content_type",
	[PR_ADOPT_HEADERS] = "headers",
	[PR_ADOPT_NEXT] = "next_attempt_at",
	[PR_ADOPT_CREATED] = "created_at",
	[PR_ADOPT_DONE] = "done",
	[PR_ADOPT_OPEN] = "open",
	[PR_ADOPT_DONE_AT] = "done_at",
	[PR_ADOPT_LOCKED] = "locked_until",
	[PR_ADOPT_ONLY] = "only",
};

static int find_part(const char *text, size_t len)
{
	for (int i = 0; i < PR_ADOPT_PARTS; i++) {
		if (strlen(pr_adopt_part_names[i]) == len &&
		    strncmp(pr_adopt_part_names[i], text, len) == 0)
			return i;
	}
	return -1;
}

static int take_column(struct pr_adopt *adopt, const char *text, struct pr_err *err)
{
	size_t len = strcspn(text, "=");
	int part = find_part(text, len);

	if (!text[len] || part < 0) {
		PR_CLEANUP_BUF struct pr_buf names = { 0 };

		for (int i = 0; i < PR_ADOPT_PARTS; i++)
			pr_buf_printf(&names, "%s%s", i > 0 ? ", " : "", pr_adopt_part_names[i]);
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: --column takes OURS=THEIRS, not \"%s\"; OURS is one of: %s",
				  text, pr_buf_text(&names));
	}
	adopt->expression[part] = false;
	adopt->parts[part] = pr_arena_strdup(&adopt->arena, text + len + 1);
	return adopt->parts[part] ? POSTROOM_OK : pr_err_nomem(err);
}

static int refuse_preset(const struct pr_adopt *adopt, const struct pr_adopt_preset *preset,
			 struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID, "adopt: %s cannot be adopted: %s", adopt->name,
			  preset->refused);
}

static int apply_preset(struct pr_adopt *adopt, const char *name, struct pr_err *err)
{
	const struct pr_adopt_preset *preset = pr_adopt_find_preset(adopt, name);

	if (!preset && name) {
		PR_CLEANUP_BUF struct pr_buf names = { 0 };

		pr_adopt_list_presets(adopt, &names);
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: there is no preset \"%s\"%s; the presets are %s", name,
				  adopt->store->ops->embedded ? " for SQLite" : "", pr_buf_text(&names));
	}
	if (!preset)
		return POSTROOM_OK;
	if (preset->refused)
		return refuse_preset(adopt, preset, err);
	adopt->preset = preset->name;
	if (!adopt->zone)
		adopt->zone = preset->zone;
	for (enum pr_adopt_part part = 0; part < PR_ADOPT_PARTS; part++) {
		if (!adopt->parts[part])
			pr_adopt_use_preset(adopt, preset, part);
	}
	return POSTROOM_OK;
}

static bool is_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The same command may be repeated: every part that it names is as recorded. */
static int check_same(struct pr_adopt *adopt, const struct pr_adopt_wish *wish, struct pr_err *err)
{
	const char *recorded[PR_ADOPT_PARTS];
	bool same = (!wish->preset || is_same(wish->preset, adopt->preset)) &&
		    (!wish->zone || is_same(wish->zone, adopt->zone));
	int status = POSTROOM_OK;

	memcpy(recorded, adopt->parts, sizeof(recorded));
	for (size_t i = 0; i < wish->column_count && status >= 0; i++)
		status = take_column(adopt, wish->columns[i], err);
	for (size_t i = 0; i < PR_ADOPT_PARTS; i++)
		same = same && is_same(recorded[i], adopt->parts[i]);
	if (status < 0 || same)
		return status;
	return pr_err_set(err, POSTROOM_INVALID,
			  "adopt: %s is adopted already with another mapping, which cannot change; run "
			  "it without --column, --preset and --time-zone, or --undo it first",
			  adopt->name);
}

static int find_mapping(struct pr_adopt *adopt, const struct pr_adopt_wish *wish,
			struct pr_err *err)
{
	int status = pr_adopt_check_owners(adopt, err);

	if (status >= 0)
		status = pr_adopt_load_state(adopt, err);
	if (status >= 0 && adopt->adopted)
		return check_same(adopt, wish, err);
	if (status < 0 || wish->existing)
		return status;
	if (wish->zone)
		adopt->zone = pr_arena_strdup(&adopt->arena, wish->zone);
	status = pr_adopt_take_columns(adopt, wish, err);
	if (status >= 0)
		status = apply_preset(adopt, wish->preset, err);
	return status < 0 ? status : pr_adopt_detect(adopt, err);
}

int pr_adopt_take_columns(struct pr_adopt *adopt, const struct pr_adopt_wish *wish,
			  struct pr_err *err)
{
	int status = POSTROOM_OK;

	for (size_t i = 0; i < wish->column_count && status >= 0; i++)
		status = take_column(adopt, wish->columns[i], err);
	return status;
}

int pr_adopt_begin(struct pr_adopt *adopt, struct postroom_store *store,
		   const struct pr_adopt_wish *wish, struct pr_err *err)
{
	*adopt = (struct pr_adopt){ .store = store };
	if (store->ops->embedded)
		return pr_adopt_sqlite_read_layout(adopt, wish->table, err);
	if (adopt_store(adopt)->pooled)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s is behind a pooler, and adopt needs a session of its own; "
				  "connect to the server directly",
				  adopt_store(adopt)->shown);
	return pr_adopt_read_layout(adopt, wish->table, err);
}

static void ignore_sample(void *context, const char *text)
{
	(void)context, (void)text;
}

/* The values of a status, such as the labels of an enum. */
static int check_values(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf sql = { 0 };
	const char *done = NULL, *open = adopt->parts[PR_ADOPT_OPEN];
	const struct pr_adopt_column *status = pr_adopt_split(adopt, adopt->parts[PR_ADOPT_DONE], &done);
	char value[256];

	pr_buf_puts(&sql, "SELECT NULL");
	for (const char *at = done; status && at; at = open) {
		size_t len = at == done ? strlen(at) : strcspn(at, ",");

		if (at != done)
			open = at[len] ? at + len + 1 : NULL;
		snprintf(value, sizeof(value), "%.*s", (int)len, at);
		pr_buf_puts(&sql, ", coalesce(t.");
		pr_adopt_put_ident(&sql, status->name);
		pr_buf_puts(&sql, ", ");
		pr_adopt_put_literal(&sql, value);
		pr_buf_putc(&sql, ')');
	}
	pr_buf_printf(&sql, " FROM %s AS t LIMIT 0", adopt->name);
	return sql.failed ? pr_err_nomem(err)
			  : pr_adopt_run(adopt, sql.data, "checking the mapping", err);
}

/*
 * A preset may name columns that the table lacks, and --column a value that its type lacks: then
 * every row would be rejected.
 */
static int check_expressions(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pr_err why = { 0 };

	if (adopt->adopted || adopt->store->ops->embedded)
		return POSTROOM_OK;
	if (pr_adopt_sample(adopt, 0, ignore_sample, NULL, &why) >= 0 &&
	    (adopt->done != PR_ADOPT_STATUS || check_values(adopt, &why) >= 0))
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_INVALID,
			  "adopt: the mapping does not fit %s: %s; correct it with --column, or choose "
			  "another --preset",
			  adopt->name, why.text);
}

int pr_adopt_open(struct pr_adopt *adopt, struct postroom_store *store,
		  const struct pr_adopt_wish *wish, struct pr_err *err)
{
	int status = pr_adopt_begin(adopt, store, wish, err);

	if (status >= 0)
		status = find_mapping(adopt, wish, err);
	if (status < 0 || (wish->existing && !adopt->adopted))
		return status;
	if (wish->existing)
		pr_adopt_skip_missing(adopt);
	status = pr_adopt_check_mapping(adopt, err);
	return status < 0 ? status : check_expressions(adopt, err);
}

void pr_adopt_release(struct pr_adopt *adopt)
{
	pr_arena_release(&adopt->arena);
	pr_buf_release(&adopt->note);
}
