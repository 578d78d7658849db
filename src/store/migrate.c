/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"

#define INCOMPATIBLE (-1) /* as a native code; SQLite's and errno's are positive */

int pr_schema_newest(const struct pr_migration *known)
{
	int version = 0;

	for (; known->version; known++)
		version = known->version;
	return version;
}

static int check_compatible(const struct pr_migration *known, const struct pr_schema_state *state,
			    const char *where, struct pr_err *err)
{
	int newest = pr_schema_newest(known);
	int status;

	if (state->compatible_with <= newest)
		return POSTROOM_OK;
	status = pr_err_set(err, POSTROOM_SCHEMA,
			    "\"%s\" has schema version %d, which programs of schema version %d or "
			    "newer can use; this program is postroom %s with schema version %d: "
			    "install postroom %s or newer",
			    where, state->version, state->compatible_with, postroom_version(),
			    newest, state->program);
	if (err)
		err->native = INCOMPATIBLE;
	return status;
}

bool pr_schema_is_incompatible(const struct pr_err *err)
{
	return err->status == POSTROOM_SCHEMA && err->native == INCOMPATIBLE;
}

int pr_schema_check(const struct pr_migration *known, const struct pr_schema_state *state,
		    enum pr_schema_need need, const char *where, struct pr_err *err)
{
	int status = check_compatible(known, state, where, err);

	if (status < 0 || need == PR_SCHEMA_COMPATIBLE || state->version >= pr_schema_newest(known))
		return status;
	return pr_err_set(err, POSTROOM_SCHEMA, "\"%s\" %s; run `postroom migrate`", where,
			  state->version ? "has an older schema" : "has no Postroom tables");
}
