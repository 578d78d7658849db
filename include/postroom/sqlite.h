/* SPDX-License-Identifier: Apache-2.0 */
/* Borrow the application's own SQLite connection. Link with libpostroom-sqlite. */
#ifndef POSTROOM_SQLITE_H
#define POSTROOM_SQLITE_H

#include <postroom.h>
#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A box on db, which stays the caller's and is never closed; free the box
 * before closing db. The tables come from `postroom migrate` or
 * postroom_store_open(). NULL only when there is no memory.
 *
 * SQLite refuses to turn a read transaction into a writing one when somebody
 * else has written meanwhile: begin with BEGIN IMMEDIATE.
 */
POSTROOM_API postroom_box *postroom_box_sqlite(sqlite3 *db);

#ifdef __cplusplus
}
#endif

#endif
