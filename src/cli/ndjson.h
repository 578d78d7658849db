/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from NDJSON: one object per line, with members named like the columns.
 *
 * Memory use does not depend on the size of the file: lines are read into one
 * buffer, and returned messages stay there until ndjson_recycle(). The payload is
 * the unchanged text of the line.
 */
#ifndef PR_CLI_NDJSON_H
#define PR_CLI_NDJSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ndjson {
	int fd;
	char *text; /* everything read and not yet recycled */
	size_t size;
	size_t at; /* where the next line begins */
	size_t end;
	size_t line_max;
	bool eof;
	int64_t line;	       /* number of the last line read, from 1 */
	int64_t read;	       /* bytes so far */
	struct pr_arena arena; /* decoded strings */
	struct pr_buf scratch;
};

enum ndjson_result {
	NDJSON_END,	/* no more lines */
	NDJSON_MESSAGE, /* a message was read */
	NDJSON_FULL	/* recycle before the next call */
};

/* Reads from fd, which the caller closes. max_payload limits the length of lines. */
int ndjson_open(struct ndjson *in, int fd, size_t max_payload, struct pr_err *err);
void ndjson_release(struct ndjson *in);

/*
 * The next message, in *ret until the next recycling; lines of white space are
 * skipped. An enum ndjson_result, or a failure whose text begins with "line N,
 * column N: ". Columns count characters, from 1.
 */
int ndjson_next(struct ndjson *in, postroom_message *ret, struct pr_err *err);
void ndjson_recycle(struct ndjson *in);

/* One line without its newline; errors begin with "column N: ". ret points into arena and line. */
int ndjson_parse(const char *line, size_t len, struct pr_arena *arena, struct pr_buf *scratch,
		 postroom_message *ret, struct pr_err *err);

#endif
