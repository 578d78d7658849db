/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE ((size_t)64 * 1024)

/* Reads up to more than max bytes, so that the caller can detect that the text is too large. */
int cli_read_stdin(struct cli *cli, const char *doing, const char *subject, size_t max,
		   struct pr_buf *out)
{
	ssize_t n = 1;

	while (n != 0 && out->len <= max) {
		char *to = pr_buf_reserve(out, READ_SIZE);

		if (!to)
			return cli_fail(cli, "%s: no memory for the %s", doing, subject);
		n = read(STDIN_FILENO, to, READ_SIZE);
		if (n < 0 && errno != EINTR)
			return cli_fail(cli, "%s: cannot read the %s: %s", doing, subject,
					strerror(errno));
		out->len += n > 0 ? (size_t)n : 0;
	}
	/* Removes the newline that echo and editors append. */
	if (n == 0 && out->len > 0 && out->data[out->len - 1] == '\n')
		out->len--;
	if (memchr(pr_buf_text(out), '\0', out->len))
		return cli_fail(cli, "%s: %s is not valid JSON: it has a zero byte", doing,
				subject);
	pr_buf_putc(out, '\0');
	return out->failed ? cli_fail(cli, "%s: no memory for the %s", doing, subject) : CLI_DONE;
}
