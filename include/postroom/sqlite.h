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
 * Makes a box on db. db stays the caller's and is never closed; free the box before closing db.
 * `postroom migrate` or postroom_store_open() creates the tables. NULL: no memory.
 *
 * SQLite does not turn a read transaction into a writing one if another connection has written
 * meanwhile: use BEGIN IMMEDIATE.
 */
POSTROOM_API postroom_box *postroom_box_sqlite(sqlite3 *db);

#ifdef __cplusplus
}
#endif

#endif
