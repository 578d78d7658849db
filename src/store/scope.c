/* SPDX-License-Identifier: Apache-2.0 */
/* A store may serve several scopes in turn: its knowledge of one does not apply to another. */
#include "store/store.h"

#include <string.h>

void pr_scope_store(const struct pr_scope *scope, struct pr_buf *kept)
{
	const char *parts[] = { scope->ns, scope->topic, scope->tenant_id };

	pr_buf_reset(kept);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		pr_buf_puts(kept, parts[i] ? parts[i] : "");
		pr_buf_putc(kept, parts[i] ? '\n' : '\t');
	}
}

bool pr_scope_equals(const struct pr_scope *scope, const struct pr_buf *kept)
{
	PR_CLEANUP_BUF struct pr_buf given = { 0 };

	pr_scope_store(scope, &given);
	return !given.failed && !kept->failed &&
	       strcmp(pr_buf_text(&given), pr_buf_text(kept)) == 0;
}

bool pr_scope_is_all(const struct pr_scope *scope)
{
	return !scope->ns && !scope->topic && !scope->tenant_id;
}
