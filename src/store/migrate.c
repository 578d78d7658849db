/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"

int pr_schema_newest(const struct pr_migration *known)
{
	int version = 0;

	for (; known->version; known++)
		version = known->version;
	return version;
}

int pr_schema_refuse_newer(const struct pr_migration *known, int version, const char *where,
			   struct pr_err *err)
{
	int newest = pr_schema_newest(known);

	if (version <= newest)
		return POSTROOM_OK;
	return pr_err_set(err, POSTROOM_SCHEMA,
			  "\"%s\" has schema version %d, but this program (%s) knows only %d: "
			  "use a newer postroom",
			  where, version, POSTROOM_VERSION, newest);
}

int pr_schema_check(const struct pr_migration *known, int version, const char *where,
		    struct pr_err *err)
{
	int status = pr_schema_refuse_newer(known, version, where, err);

	if (status < 0 || version == pr_schema_newest(known))
		return status;
	return pr_err_set(err, POSTROOM_SCHEMA, "\"%s\" %s; run `postroom migrate`", where,
			  version ? "has an older schema" : "has no Postroom tables");
}
