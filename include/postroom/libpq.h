/* SPDX-License-Identifier: Apache-2.0 */
/* Borrow the application's own PostgreSQL connection. Link with libpostroom-libpq. */
#ifndef POSTROOM_LIBPQ_H
#define POSTROOM_LIBPQ_H

#include <libpq-fe.h>
#include <postroom.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a box on conn. conn stays the caller's and is never closed; free the box before closing
 * conn. `postroom migrate` creates the tables; the connection's search_path finds them. NULL: no
 * memory. The session keeps no state (no prepared statements, no settings), so a pooler in
 * transaction mode works.
 *
 * Foreseeable errors (invalid input, a duplicate, a connection in the wrong encoding) leave the
 * transaction usable. Others are POSTROOM_TX_ABORTED, and postroom_sqlstate() has the code. At
 * REPEATABLE READ and above, a duplicate that was committed after the transaction's snapshot is a
 * serialization failure (40001): retry the transaction, and it will be a duplicate.
 */
POSTROOM_API postroom_box *postroom_box_libpq(PGconn *conn);

#ifdef __cplusplus
}
#endif

#endif
