/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a mapping fits the table. */
#include "adopt/sqlite/sqlite.h"

#include <string.h>

static int refuse_part(const struct pr_adopt *adopt, enum pr_adopt_part part, const char *why,
		       struct pr_err *err)
{
	return pr_err_set(err, POSTROOM_INVALID, "adopt: %s=%s: %s", pr_adopt_part_names[part],
			  adopt->parts[part], why);
}

static bool is_quoted(const char *text)
{
	size_t len = strlen(text);

	return len >= 2 && *text == '\'' && text[len - 1] == '\'';
}

static bool may_be_constant(enum pr_adopt_part part)
{
	return part == PR_ADOPT_NAMESPACE || part == PR_ADOPT_TOPIC ||
	       part == PR_ADOPT_CONTENT_TYPE || part == PR_ADOPT_TENANT;
}

/* Without these, --status and --undo still find the rows, their messages and their marks. */
static bool is_needed(enum pr_adopt_part part)
{
	return part == PR_ADOPT_ID || part == PR_ADOPT_DONE || part == PR_ADOPT_OPEN ||
	       part == PR_ADOPT_ONLY;
}

void pr_adopt_skip_missing(struct pr_adopt *adopt)
{
	for (enum pr_adopt_part part = 0; part < PR_ADOPT_PARTS; part++) {
		const char *text = adopt->parts[part];

		if (is_needed(part) || !text || !*text || adopt->expression[part] ||
		    is_quoted(text) || pr_adopt_find_column(adopt, text) >= 0)
			continue;
		pr_buf_printf(&adopt->note,
			      "The table no longer has the column %s, which is the %s. Run --undo, then "
			      "adopt the table again.\n",
			      text, pr_adopt_part_names[part]);
		adopt->parts[part] = NULL;
	}
}

static int refuse_missing(const struct pr_adopt *adopt, enum pr_adopt_part part, struct pr_err *err)
{
	const char *why = "the table has no such column; names are compared exactly";

	if (adopt->adopted)
		why = is_needed(part) ? "the table no longer has this column; give it its old name, run "
					"--undo, then rename it and adopt the table again"
				      : "the table no longer has this column; run --undo, then adopt the "
					"table again";
	return refuse_part(adopt, part, why, err);
}

static int check_part(const struct pr_adopt *adopt, enum pr_adopt_part part, struct pr_err *err)
{
	const char *text = adopt->parts[part];
	bool named = text && *text && !adopt->expression[part];
	int found = named ? pr_adopt_find_column(adopt, text) : -1;
	enum pr_adopt_type type = found < 0 ? PR_ADOPT_OTHER : adopt->columns[found].type;
	bool is_time = type == PR_ADOPT_TIMESTAMP || type == PR_ADOPT_TIMESTAMPTZ;

	if (!named)
		return POSTROOM_OK;
	if (found < 0 && is_quoted(text) && may_be_constant(part))
		return POSTROOM_OK;
	if (found < 0)
		return refuse_missing(adopt, part, err);
	if (part >= PR_ADOPT_NEXT && part != PR_ADOPT_DONE && !is_time)
		return refuse_part(adopt, part, "the column is not a timestamp", err);
	if ((part == PR_ADOPT_NEXT || part == PR_ADOPT_CREATED) && type == PR_ADOPT_TIMESTAMP &&
	    !adopt->zone)
		return refuse_part(adopt, part,
				   "the column has no time zone; say in which zone the application "
				   "writes it, such as --time-zone UTC",
				   err);
	if (part == PR_ADOPT_BODY && type != PR_ADOPT_BYTES && type != PR_ADOPT_TEXT)
		return refuse_part(adopt, part, "the column is neither bytea nor text", err);
	if (part == PR_ADOPT_PAYLOAD && type != PR_ADOPT_JSON && type != PR_ADOPT_JSONB &&
	    type != PR_ADOPT_TEXT)
		return refuse_part(adopt, part,
				   "the column is neither JSON nor text; bytes are a body", err);
	return POSTROOM_OK;
}

static bool is_status(const struct pr_adopt *adopt)
{
	const char *value = NULL;

	return pr_adopt_split(adopt, adopt->parts[PR_ADOPT_DONE], &value) != NULL;
}

static int check_only(const struct pr_adopt *adopt, struct pr_err *err)
{
	const char *spec = adopt->parts[PR_ADOPT_ONLY], *value = NULL;

	if (!spec || !*spec || adopt->expression[PR_ADOPT_ONLY] ||
	    pr_adopt_split(adopt, spec, &value))
		return POSTROOM_OK;
	return refuse_part(adopt, PR_ADOPT_ONLY,
			   "give a column and the values of the rows to adopt, as COLUMN:VALUE,VALUE",
			   err);
}

static int check_done(struct pr_adopt *adopt, struct pr_err *err)
{
	const char *spec = adopt->parts[PR_ADOPT_DONE];
	int found = pr_adopt_find_column(adopt, spec);
	enum pr_adopt_type type = found < 0 ? PR_ADOPT_OTHER : adopt->columns[found].type;

	if (found < 0 && is_status(adopt)) {
		adopt->done = PR_ADOPT_STATUS;
		if (!adopt->parts[PR_ADOPT_OPEN] || !*adopt->parts[PR_ADOPT_OPEN])
			return refuse_part(adopt, PR_ADOPT_DONE,
					   "also say which values mean that a message waits, with "
					   "--column open=VALUE,VALUE",
					   err);
		return POSTROOM_OK;
	}
	if (found < 0 && strcmp(spec, "delete") == 0)
		adopt->done = PR_ADOPT_DELETE;
	else if (found < 0 && strcmp(spec, "none") == 0)
		adopt->done = PR_ADOPT_NONE;
	else if (found < 0 && adopt->adopted)
		return refuse_missing(adopt, PR_ADOPT_DONE, err);
	else if (found < 0)
		return refuse_part(adopt, PR_ADOPT_DONE,
				   "this is not a column, COLUMN:VALUE, delete or none", err);
	else if (type == PR_ADOPT_BOOL || type == PR_ADOPT_INT)
		adopt->done = PR_ADOPT_FLAG;
	else if (type == PR_ADOPT_TIMESTAMP || type == PR_ADOPT_TIMESTAMPTZ)
		adopt->done = PR_ADOPT_TIME;
	else
		return refuse_part(adopt, PR_ADOPT_DONE,
				   "give the value that means sent, as COLUMN:VALUE", err);
	return POSTROOM_OK;
}

static int check_zone(struct pr_adopt *adopt, struct pr_err *err)
{
	struct pgsql_params params = { 0 };
	PR_CLEANUP_RESULT PGresult *result = NULL;

	if (!adopt->zone)
		return POSTROOM_OK;
	if (adopt->store->ops->embedded && strcmp(adopt->zone, "UTC") != 0)
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: SQLite knows no time zone \"%s\"; only UTC is possible, or leave "
				  "the column out with --column created_at=",
				  adopt->zone);
	if (adopt->store->ops->embedded)
		return POSTROOM_OK;
	pr_pgsql_text(&params, adopt->zone);
	result = pr_pgsql_query(adopt_store(adopt),
				"SELECT EXISTS (SELECT FROM pg_timezone_names WHERE name = $1)", &params,
				"checking the time zone", err);
	if (!result)
		return err->status;
	if (*PQgetvalue(result, 0, 0) != 't')
		return pr_err_set(err, POSTROOM_INVALID,
				  "adopt: the server does not know the time zone \"%s\"; give a name "
				  "such as UTC or Europe/Berlin",
				  adopt->zone);
	return POSTROOM_OK;
}

/* Otherwise every row would be rejected, or --undo would fail. */
static int check_settable(const struct pr_adopt *adopt, enum pr_adopt_part part,
			  const struct pr_adopt_column *column, struct pr_err *err)
{
	if (!column || pr_adopt_is_settable(column))
		return POSTROOM_OK;
	return refuse_part(adopt, part,
			   column->generated ? "the column is generated, so it cannot be set; name the "
					       "column that it is computed from"
					     : "the column is NOT NULL, so it cannot say that a row waits",
			   err);
}

/* An adoption that an earlier version has recorded can still be undone. */
static int check_marker(struct pr_adopt *adopt, struct pr_err *err)
{
	const char *value = NULL;
	int status = check_done(adopt, err);

	if (status < 0 || adopt->adopted)
		return status;
	status = check_settable(adopt, PR_ADOPT_DONE, pr_adopt_marker_of(adopt, &value), err);
	return status < 0 ? status
			  : check_settable(adopt, PR_ADOPT_DONE_AT,
					   pr_adopt_column_of(adopt, PR_ADOPT_DONE_AT), err);
}

int pr_adopt_check_mapping(struct pr_adopt *adopt, struct pr_err *err)
{
	const char *also = adopt->parts[PR_ADOPT_DONE_AT];
	int status = check_zone(adopt, err);

	if (status >= 0 && also && strcmp(also, adopt->parts[PR_ADOPT_DONE]) == 0)
		return refuse_part(adopt, PR_ADOPT_DONE_AT, "this is the column of done already", err);

	for (enum pr_adopt_part part = 0; part < PR_ADOPT_PARTS && status >= 0; part++) {
		if (part != PR_ADOPT_DONE && part != PR_ADOPT_OPEN && part != PR_ADOPT_ONLY)
			status = check_part(adopt, part, err);
	}
	if (status >= 0)
		status = check_only(adopt, err);
	return status < 0 ? status : check_marker(adopt, err);
}
