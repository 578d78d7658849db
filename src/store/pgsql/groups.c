/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead rows by their cause.
 *
 * 1. The newest 100,000 rows are read, in the order of their index; the rest only makes the answer
 *    say that it is capped.
 * 2. Errors stay in the table: of a row only the fingerprint is kept, and of a group the error of
 *    its newest row is read in the end.
 */
#include "store/pgsql/statements.h"

int pr_pgsql_groups(struct postroom_store *base, const postroom_filter *filter,
		    const struct pr_grouping *grouping, struct pr_err *err)
{
	PR_CLEANUP_RESULT PGresult *result = NULL;
	const struct pgsql_filter with = { .filter = filter, .words = pr_pgsql_words(filter) };
	struct pgsql_params params = { 0 };
	bool inbox = filter->table == POSTROOM_INBOX;

	if (inbox)
		pr_sql_bind_groups_inbox(&params, grouping->limit);
	else
		pr_sql_bind_groups_outbox(&params, grouping->limit);
	result = pr_sql_run_filtered(pgsql_store(base),
				     inbox ? &pr_sql_groups_inbox : &pr_sql_groups_outbox, &params,
				     &with, err);
	if (!result)
		return err->status;
	for (int row = 0; row < PQntuples(result); row++) {
		const postroom_group group = {
			.fingerprint = pr_pgsql_text_at(result, row, 0),
			.example_error = pr_pgsql_text_at(result, row, 1),
			.topic = pr_pgsql_text_at(result, row, 2),
			.handler = pr_pgsql_text_at(result, row, 3),
			.example_id = pr_pgsql_text_at(result, row, 4),
			.count = pr_pgsql_number_at(result, row, 5),
			.first_at_us = pr_pgsql_number_at(result, row, 6),
			.last_at_us = pr_pgsql_number_at(result, row, 7),
			.sink = pr_pgsql_text_at(result, row, 9),
		};

		*grouping->ret_capped = PQgetvalue(result, row, 8)[0] == 't';
		if (grouping->fn(grouping->context, &group) != 0)
			break;
	}
	return POSTROOM_OK;
}
