/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of their columns is which of ours: by a dictionary of names that such tables have. Names
 * of an earlier tier win; two names of one tier are ambiguous, and the operator decides.
 */
#include "adopt/parts.h"

#include "base/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define TIERS 3

#define IS(type) (1u << PR_ADOPT_##type)
#define TEXTS (IS(TEXT) | IS(ENUM))
#define SCALARS (IS(TEXT) | IS(UUID) | IS(INT) | IS(ENUM))
#define TIMES (IS(TIMESTAMPTZ) | IS(TIMESTAMP))
#define SETTABLE (1u << 31)

/* Names in lower case, without underscores and without the ending "utc". */
static const struct {
	enum pr_adopt_part part;
	unsigned types;
	const char *tiers[TIERS];
} dictionary[] = {
	{ PR_ADOPT_NAMESPACE, TEXTS, { "namespace" } },
	{ PR_ADOPT_TOPIC,
	  TEXTS,
	  { "topic", "eventtype messagetype eventname type recordtype",
	    "subject destination name event" } },
	{ PR_ADOPT_TENANT, IS(UUID), { "tenantid tenant" } },
	{ PR_ADOPT_KEY,
	  SCALARS,
	  { "key orderingkey partitionkey messagekey eventkey recordkey",
	    "aggregateid aggregateidentifier", "routingkey segment" } },
	{ PR_ADOPT_DEDUPE, SCALARS, { "dedupekey", "idempotencykey idempotentkey deduplicationkey" } },
	{ PR_ADOPT_CORRELATION, SCALARS, { "correlationid" } },
	{ PR_ADOPT_PAYLOAD,
	  IS(TEXT) | IS(JSON) | IS(JSONB) | IS(BYTES),
	  { "payload payloadjson jsonpayload",
	    "eventdata content body data eventjson messagedata serializedevent", "details message" } },
	{ PR_ADOPT_CONTENT_TYPE, TEXTS, { "contenttype" } },
	{ PR_ADOPT_HEADERS, IS(TEXT) | IS(JSON) | IS(JSONB), { "headers", "metadata headerbag" } },
	{ PR_ADOPT_NEXT,
	  TIMES,
	  { "nextattemptat nextretryat", "availableat scheduledat runafter visibleafter" } },
	{ PR_ADOPT_CREATED,
	  TIMES,
	  { "createdat created createdon", "occurredat occurredon insertedat added timestamp" } },
	{ PR_ADOPT_LOCKED, TIMES, { "lockeduntil processinguntil" } },
	{ PR_ADOPT_DONE_AT,
	  TIMES | SETTABLE,
	  { "publishedat processedat processedon sentat sendat deliveredat dispatchedat completedat "
	    "completiondate",
	    "published processed sent delivered dispatched completed" } },
};

static const char status_names[] = "status state statusname outboxstatus eventstatus messagestatus "
				   "processingstatus deliverystatus";
static const char flag_names[] =
	"isprocessed processed ispublished published issent sent isdelivered delivered "
	"isdispatched dispatched";
static const char open_values[] = "pending new created unpublished init initial unsent ready";
static const char done_values[] =
	"published sent processed completed delivered succeeded success done dispatched";

static void normalize_name(const char *name, char out[64])
{
	size_t len = 0;

	for (; *name && len < 63; name++) {
		if (*name != '_' && *name != ' ')
			out[len++] = (char)tolower((unsigned char)*name);
	}
	if (len > 3 && memcmp(out + len - 3, "utc", 3) == 0)
		len -= 3;
	out[len] = '\0';
}

/* Whether word is one of the words, which are separated by blanks. */
static bool is_listed(const char *word, const char *words)
{
	size_t len = strlen(word);

	for (const char *at = words; len > 0 && (at = strstr(at, word)); at += len) {
		if ((at == words || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	}
	return false;
}

/* Columns with one of the names and types: how many; the first one is *ret. */
static size_t match_columns(const struct pr_adopt *adopt, const char *names, unsigned types,
			    const char **ret, struct pr_buf *all)
{
	size_t count = 0;
	char name[64];

	for (size_t i = 0; names && i < adopt->column_count; i++) {
		const struct pr_adopt_column *column = &adopt->columns[i];

		normalize_name(column->name, name);
		if (!(types & (1u << column->type)) || !is_listed(name, names))
			continue;
		if ((types & SETTABLE) && !pr_adopt_is_settable(column))
			continue;
		if (count++ == 0)
			*ret = column->name;
		pr_buf_printf(all, "%s%s", all->len > 0 ? ", " : "", column->name);
	}
	return count;
}

static int ask_for(enum pr_adopt_part part, const struct pr_buf *candidates, struct pr_err *err)
{
	const char *ours = pr_adopt_part_names[part];

	if (candidates->len > 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: several columns may be the %s: %s; choose one with "
				  "--column %s=NAME",
				  ours, pr_buf_text(candidates), ours);
	return pr_err_set(err, POSTROOM_INVALID,
			  "adopt: no column looks like the %s; name it with --column %s=NAME, or give a "
			  "constant with --column \"%s='TEXT'\"",
			  ours, ours, ours);
}

/* A part that the operator has set to "" stays without a column. */
static int look_up(struct pr_adopt *adopt, size_t entry, struct pr_err *err)
{
	enum pr_adopt_part part = dictionary[entry].part;

	for (size_t tier = 0; tier < TIERS && !adopt->parts[part]; tier++) {
		PR_CLEANUP_BUF struct pr_buf all = { 0 };
		size_t count = match_columns(adopt, dictionary[entry].tiers[tier],
					     dictionary[entry].types, &adopt->parts[part], &all);

		if (count > 1) {
			adopt->parts[part] = NULL;
			return ask_for(part, &all, err);
		}
	}
	return POSTROOM_OK;
}

static void detect_id(struct pr_adopt *adopt)
{
	static const char names[] = "eventid messageid id uuid identifier";
	PR_CLEANUP_BUF struct pr_buf all = { 0 };
	size_t uuids;

	if (adopt->parts[PR_ADOPT_ID])
		return;
	uuids = match_columns(adopt, "eventid messageid uuid identifier", IS(UUID),
			      &adopt->parts[PR_ADOPT_ID], &all);
	if (uuids == 0)
		uuids = match_columns(adopt, "id", SCALARS, &adopt->parts[PR_ADOPT_ID], &all);
	if (uuids == 0)
		uuids = match_columns(adopt, names, SCALARS, &adopt->parts[PR_ADOPT_ID], &all);
	if (uuids == 0)
		adopt->parts[PR_ADOPT_ID] = adopt->columns[adopt->key[0]].name;
}

static void check_json(void *context, const char *value, size_t len)
{
	bool *is_json = context;

	*is_json = *is_json && pr_json_check(value, len, NULL);
}

/* Text that is not JSON is delivered as it is: as a body. */
static int detect_content(struct pr_adopt *adopt, struct pr_err *err)
{
	const char *column = adopt->parts[PR_ADOPT_PAYLOAD];
	int found = column ? pr_adopt_find_column(adopt, column) : -1;
	bool is_text = found >= 0 && adopt->columns[found].type == PR_ADOPT_TEXT;
	bool is_json = true;

	if (is_text) {
		int status = pr_adopt_sample_values(adopt, column, false, check_json, &is_json, err);

		if (status < 0)
			return status;
	}
	if (found >= 0 && (adopt->columns[found].type == PR_ADOPT_BYTES || !is_json)) {
		adopt->parts[PR_ADOPT_BODY] = column;
		adopt->parts[PR_ADOPT_PAYLOAD] = NULL;
	}
	if (is_text && !is_json)
		pr_buf_printf(&adopt->note,
			      "%s contains text that is not JSON, so all rows are delivered as text; "
			      "for JSON only, give --column payload=%s\n",
			      column, column);
	return POSTROOM_OK;
}

struct value_search {
	struct pr_adopt *adopt;
	const char *open[8], *done[8];
	size_t open_count, done_count;
};

static void note_value(struct value_search *search, const char *value, bool is_default)
{
	char name[64];
	bool open, done;

	normalize_name(value, name);
	done = is_listed(name, done_values);
	open = !done && (is_default || is_listed(name, open_values));
	for (size_t i = 0; i < search->open_count; i++)
		open = open && strcmp(search->open[i], value) != 0;
	for (size_t i = 0; i < search->done_count; i++)
		done = done && strcmp(search->done[i], value) != 0;
	if (open && search->open_count < 8)
		search->open[search->open_count++] = pr_arena_strdup(&search->adopt->arena, value);
	if (done && search->done_count < 8)
		search->done[search->done_count++] = pr_arena_strdup(&search->adopt->arena, value);
}

/* 'pending'::text, 'NEW'::my_enum, 0 */
static void note_default(struct value_search *search, const char *sql)
{
	char value[64];
	bool quoted = *sql == '\'';
	size_t len = quoted ? strcspn(sql + 1, "'") : strspn(sql, "0123456789");

	if (len == 0 || len >= sizeof(value) || (!quoted && sql[len]))
		return;
	memcpy(value, sql + quoted, len);
	value[len] = '\0';
	note_value(search, value, true);
}

static void note_used(void *context, const char *value, size_t len)
{
	(void)len;
	note_value(context, value, false);
}

static int find_values(struct value_search *search, const struct pr_adopt_column *column,
		       struct pr_err *err)
{
	int status = pr_adopt_read_labels(search->adopt, column->name, note_used, search, err);

	note_default(search, column->fallback);
	if (status < 0)
		return status;
	return pr_adopt_sample_values(search->adopt, column->name, true, note_used, search, err);
}

static int detect_values(struct pr_adopt *adopt, const struct pr_adopt_column *column,
			 struct pr_err *err)
{
	struct value_search search = { .adopt = adopt };
	PR_CLEANUP_BUF struct pr_buf open = { 0 };
	int status = find_values(&search, column, err);

	if (status < 0)
		return status;
	if (search.done_count != 1)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s does not show which value of %s means that a message was "
				  "sent; give it with --column done=%s:VALUE",
				  adopt->name, column->name, column->name);
	if (search.open_count == 0 && !adopt->parts[PR_ADOPT_OPEN])
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s does not show which values of %s mean that a message "
				  "waits; give them with --column open=VALUE,VALUE",
				  adopt->name, column->name);
	adopt->parts[PR_ADOPT_DONE] =
		pr_arena_printf(&adopt->arena, "%s:%s", column->name, search.done[0]);
	for (size_t i = 0; i < search.open_count; i++)
		pr_buf_printf(&open, "%s%s", i > 0 ? "," : "", search.open[i]);
	if (!adopt->parts[PR_ADOPT_OPEN])
		adopt->parts[PR_ADOPT_OPEN] = pr_arena_strdup(&adopt->arena, pr_buf_text(&open));
	if (!adopt->parts[PR_ADOPT_DONE] || !adopt->parts[PR_ADOPT_OPEN])
		return pr_err_nomem(err);
	return POSTROOM_OK;
}

/* A status wins over a flag, and a flag over a time, which is then set together with it. */
static int detect_done(struct pr_adopt *adopt, struct pr_err *err)
{
	PR_CLEANUP_BUF struct pr_buf all = { 0 };
	const char *column = NULL;

	if (adopt->parts[PR_ADOPT_DONE]) {
		const char *also = adopt->parts[PR_ADOPT_DONE_AT];

		/* One column is set once. */
		if (also && strcmp(also, adopt->parts[PR_ADOPT_DONE]) == 0)
			adopt->parts[PR_ADOPT_DONE_AT] = NULL;
		return POSTROOM_OK;
	}
	if (match_columns(adopt, status_names, TEXTS | IS(INT) | SETTABLE, &column, &all) == 1)
		return detect_values(adopt, &adopt->columns[pr_adopt_find_column(adopt, column)],
				     err);
	if (match_columns(adopt, flag_names, IS(BOOL) | IS(INT) | SETTABLE, &column, &all) == 1) {
		adopt->parts[PR_ADOPT_DONE] = column;
		return POSTROOM_OK;
	}
	if (all.len > 0)
		return ask_for(PR_ADOPT_DONE, &all, err);
	adopt->parts[PR_ADOPT_DONE] = adopt->parts[PR_ADOPT_DONE_AT];
	adopt->parts[PR_ADOPT_DONE_AT] = NULL;
	if (!adopt->parts[PR_ADOPT_DONE] || !*adopt->parts[PR_ADOPT_DONE])
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: %s has no column that says whether a row was sent; name it "
				  "with --column done=NAME, or give --column done=delete if the old "
				  "dispatcher deletes rows that it has sent, or --column done=none if "
				  "it reads the write-ahead log",
				  adopt->name);
	return POSTROOM_OK;
}

/* Tenants must not be lost silently. */
static void note_tenant(struct pr_adopt *adopt)
{
	PR_CLEANUP_BUF struct pr_buf all = { 0 };
	const char *column = NULL;

	if (adopt->parts[PR_ADOPT_TENANT] || adopt->expression[PR_ADOPT_HEADERS] ||
	    match_columns(adopt, "tenantid tenant", SCALARS, &column, &all) == 0)
		return;
	pr_buf_printf(&adopt->note,
		      "%s is not of the type uuid, so it is not delivered; if it contains UUIDs, give "
		      "--column tenant_id=%s, or to make each tenant a namespace, --column namespace=%s\n",
		      column, column, column);
}

int pr_adopt_detect(struct pr_adopt *adopt, struct pr_err *err)
{
	const struct pr_buf none = { 0 };
	int status = POSTROOM_OK;

	detect_id(adopt);
	/* A body that the operator has named needs no payload. */
	if (adopt->parts[PR_ADOPT_BODY] && !adopt->parts[PR_ADOPT_PAYLOAD])
		adopt->parts[PR_ADOPT_PAYLOAD] = "";
	bool given = adopt->parts[PR_ADOPT_PAYLOAD] != NULL;
	for (size_t i = 0; i < sizeof(dictionary) / sizeof(dictionary[0]) && status >= 0; i++)
		status = look_up(adopt, i, err);
	if (status >= 0 && !adopt->parts[PR_ADOPT_TOPIC])
		status = ask_for(PR_ADOPT_TOPIC, &none, err);
	if (status >= 0 && !adopt->parts[PR_ADOPT_PAYLOAD])
		status = ask_for(PR_ADOPT_PAYLOAD, &none, err);
	note_tenant(adopt);
	if (status >= 0 && !given)
		status = detect_content(adopt, err);
	if (status >= 0)
		status = detect_done(adopt, err);
	return status;
}
