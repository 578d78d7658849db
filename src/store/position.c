/* SPDX-License-Identifier: Apache-2.0 */
#include "store/position.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pr_row_position(const postroom_row *row, char out[PR_ROW_POSITION_SIZE])
{
	if (row->handler)
		snprintf(out, PR_ROW_POSITION_SIZE, "%" PRId64, row->seq);
	else
		snprintf(out, PR_ROW_POSITION_SIZE, "%.36s.%" PRId64 ".%" PRId64, row->id, row->seq,
			 row->delivered_at_us);
}

/* Reads digits and moves behind them. */
static bool read_digits(const char **at, int64_t *ret)
{
	size_t len = strspn(*at, "0123456789");

	if (len == 0 || len > 18)
		return false;
	*ret = strtoll(*at, NULL, 10);
	*at += len;
	return true;
}

bool pr_position_parse(const char *text, struct pr_position *ret)
{
	const char *at = text + strcspn(text, ".");
	char id[64];

	*ret = (struct pr_position){ .known = *at == '.' };
	if ((size_t)(at - text) >= sizeof(id))
		return false;
	memcpy(id, text, (size_t)(at - text));
	id[at - text] = '\0';
	if (!pr_uuid_normalize(id, ret->id))
		return false;
	if (!ret->known)
		return true;
	at++;
	if (!read_digits(&at, &ret->seq) || *at++ != '.')
		return false;
	return read_digits(&at, &ret->delivered_at_us) && *at == '\0';
}
