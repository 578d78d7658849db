/* SPDX-License-Identifier: Apache-2.0 */
#include "base/revision.h"

/* git archive replaces the text between the dollar signs: see .gitattributes. */
static const char commit[] = "$Format:%H$";
static const char date[] = "$Format:%cI$";

const char *pr_revision(void)
{
	return commit[0] == '$' ? "unknown" : commit;
}

const char *pr_revision_date(void)
{
	return date[0] == '$' ? "unknown" : date;
}

const char *pr_compiler(void)
{
#ifdef __clang__
	return __VERSION__; /* begins with the name */
#else
	return "gcc " __VERSION__;
#endif
}
