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
 * A box on conn, which stays the caller's and is never closed; free the box
 * before closing conn. The tables come from `postroom migrate` and are found
 * by the connection's search_path. NULL only when there is no memory.
 *
 * Nothing is kept in the session (no prepared statements, no settings), so a
 * pooler in transaction mode is no obstacle. What can be foreseen (bad input,
 * a duplicate, a connection in the wrong encoding) leaves the transaction
 * usable; what can not is POSTROOM_TX_ABORTED, and postroom_sqlstate() says
 * what it was. At REPEATABLE READ and above a duplicate that was committed
 * after the transaction's snapshot is a serialization failure (40001): do the
 * transaction again, and it will be a duplicate.
 */
POSTROOM_API postroom_box *postroom_box_libpq(PGconn *conn);

#ifdef __cplusplus
}
#endif

#endif
