/* SPDX-License-Identifier: Apache-2.0 */
/* The place in a listing behind a row, deleted or not. As text it is a value for filter->after. */
#ifndef PR_STORE_POSITION_H
#define PR_STORE_POSITION_H

#include "base/uuid.h"

#include <postroom/store.h>

/* Of a row of the outbox. */
struct pr_position {
	char id[PR_UUID_SIZE];
	bool known; /* the rest is set; otherwise only the row with this id can say */
	int64_t seq, delivered_at_us;
};

/* False: text is neither an id nor what pr_row_position() writes. */
bool pr_position_parse(const char *text, struct pr_position *ret);

#define PR_ROW_POSITION_SIZE 80
void pr_row_position(const postroom_row *row, char out[PR_ROW_POSITION_SIZE]);

#endif
