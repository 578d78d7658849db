#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""order.py URL: an order and its message in one transaction, through psycopg2 and plain SQL."""
import json
import sys

import psycopg2


def place_order(db, order, customer, total):
    """The id of the order's message, and whether it was there before."""
    # This block commits the transaction, or rolls it back if an exception is raised.
    with db, db.cursor() as cursor:
        cursor.execute(
            "SELECT id, duplicate FROM postroom_enqueue('orders.created', %s,"
            " key => %s, idempotency_key => %s)",
            (json.dumps({'order': order, 'total': total}), order, order))
        message, duplicate = cursor.fetchone()
        if not duplicate:
            cursor.execute('INSERT INTO orders VALUES (%s, %s, %s)', (order, customer, total))
            if total <= 0:
                raise ValueError(f'order {order} costs nothing')
    return message, duplicate


def main():
    db = psycopg2.connect(sys.argv[1])
    with db, db.cursor() as cursor:
        cursor.execute('CREATE TABLE IF NOT EXISTS orders'
                       ' (id text PRIMARY KEY, customer text, total integer)')

    for _ in range(2):
        message, duplicate = place_order(db, 'py-1', 'Ada', 4200)
        print(f'py-1 {"was placed before" if duplicate else "is placed"}, with message {message}')
    try:
        place_order(db, 'py-2', 'Bob', 0)
    except ValueError as error:
        print(f'{error}: rolled back, and no message about it')
    db.close()


main()
