/* SPDX-License-Identifier: Apache-2.0 */
/* The marker of rows that are done, for both databases: which column it is, and what it is set to. */
#include "adopt/parts.h"

#include <stdio.h>
#include <string.h>

bool pr_adopt_has_part(const struct pr_adopt *adopt, enum pr_adopt_part part)
{
	return adopt->parts[part] && *adopt->parts[part];
}

const struct pr_adopt_column *pr_adopt_column_of(const struct pr_adopt *adopt,
						 enum pr_adopt_part part)
{
	bool named = pr_adopt_has_part(adopt, part) && !adopt->expression[part];
	int found = named ? pr_adopt_find_column(adopt, adopt->parts[part]) : -1;

	return found < 0 ? NULL : &adopt->columns[found];
}

bool pr_adopt_is_settable(const struct pr_adopt_column *column)
{
	bool is_time = column->type == PR_ADOPT_TIMESTAMP || column->type == PR_ADOPT_TIMESTAMPTZ;

	return !column->generated && !(is_time && column->not_null);
}

const struct pr_adopt_column *pr_adopt_marker_of(const struct pr_adopt *adopt,
						 const char **ret_value)
{
	return adopt->done == PR_ADOPT_STATUS
		       ? pr_adopt_split(adopt, adopt->parts[PR_ADOPT_DONE], ret_value)
		       : pr_adopt_column_of(adopt, PR_ADOPT_DONE);
}

bool pr_adopt_has_marker(const struct pr_adopt *adopt)
{
	return adopt->done != PR_ADOPT_DELETE && adopt->done != PR_ADOPT_NONE;
}

void pr_adopt_put_value_list(const struct pr_adopt_dialect *dialect, const char *values,
			     struct pr_buf *out)
{
	while (*values) {
		char value[256];
		size_t len = strcspn(values, ",");

		snprintf(value, sizeof(value), "%.*s", (int)len, values);
		dialect->put_literal(out, value);
		values += len + (values[len] == ',');
		pr_buf_puts(out, *values ? ", " : "");
	}
}

/* A row that is open again gets the first of its open states. */
static void put_status(const struct pr_adopt *adopt, const struct pr_adopt_dialect *dialect,
		       const char *done, struct pr_buf *out)
{
	const char *open = adopt->parts[PR_ADOPT_OPEN];
	char first[256];

	snprintf(first, sizeof(first), "%.*s", (int)strcspn(open, ","), open);
	dialect->put_literal(out, done ? done : first);
}

static void put_time_or_null(const struct pr_adopt *adopt, const struct pr_adopt_dialect *dialect,
			     const struct pr_adopt_column *column, bool done, struct pr_buf *out)
{
	if (done)
		dialect->put_now(adopt, column, out);
	else
		pr_buf_puts(out, "NULL");
}

void pr_adopt_put_assignments(const struct pr_adopt *adopt, const struct pr_adopt_dialect *dialect,
			      bool done, struct pr_buf *out)
{
	const char *value = "";
	const struct pr_adopt_column *marker = pr_adopt_marker_of(adopt, &value);
	const struct pr_adopt_column *also = pr_adopt_column_of(adopt, PR_ADOPT_DONE_AT);

	if (!marker)
		return;
	pr_adopt_put_ident(out, marker->name);
	pr_buf_puts(out, " = ");
	if (adopt->done == PR_ADOPT_STATUS)
		put_status(adopt, dialect, done ? value : NULL, out);
	else if (adopt->done == PR_ADOPT_TIME)
		put_time_or_null(adopt, dialect, marker, done, out);
	else if (dialect->has_booleans && marker->type == PR_ADOPT_BOOL)
		pr_buf_puts(out, done ? "true" : "false");
	else
		pr_buf_puts(out, done ? "1" : "0");
	if (!also)
		return;
	pr_buf_puts(out, ", ");
	pr_adopt_put_ident(out, also->name);
	pr_buf_puts(out, " = ");
	put_time_or_null(adopt, dialect, also, done, out);
}
