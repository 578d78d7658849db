#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""order.py FILE: an order and its message in one transaction. Postroom needs no driver here."""
import json
import sqlite3
import sys


def place_order(db, order, customer, total):
    # IMMEDIATE takes the write lock at once: a transaction that reads first and
    # writes later may be refused if another transaction has written in between.
    db.execute('BEGIN IMMEDIATE')
    try:
        db.execute('INSERT INTO orders VALUES (?, ?, ?)', (order, customer, total))
        db.execute(
            'INSERT INTO postroom_outbox (topic, key, payload) VALUES (?, ?, ?)',
            ('orders.created', order, json.dumps({'order': order, 'total': total})))
        if total <= 0:
            raise ValueError(f'order {order} costs nothing')
        db.execute('COMMIT')
    except BaseException:
        db.execute('ROLLBACK')
        raise


def main():
    # isolation_level=None: this program begins and ends transactions itself.
    db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
    db.execute('CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT, total INTEGER)')

    place_order(db, 'py-1', 'Ada', 4200)
    print('py-1 is placed, and its message waits for the relay')
    try:
        place_order(db, 'py-2', 'Bob', 0)
    except ValueError as error:
        print(f'{error}: rolled back, and no message about it')
    db.close()


main()
