# SPDX-License-Identifier: Apache-2.0
"""Writes to an SQLite database without pause, and a message now and then.

    writer.py FILE COUNT      prints "NUMBER SECONDS" when a message is committed, by the
                              monotonic clock; goes on writing until it is ended
"""
import sqlite3
import sys
import time

EVERY_S = 0.05

connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute('CREATE TABLE other (text)')
sent, due = 0, time.monotonic()
while True:
    message = sent < int(sys.argv[2]) and time.monotonic() >= due
    connection.execute('BEGIN IMMEDIATE')
    connection.execute('INSERT INTO other VALUES (?)', ('x' * 200,))
    if message:
        connection.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('bench.orders', ?)",
                           (f'{{"n":{sent}}}',))
    connection.execute('COMMIT')
    if message:
        print(sent, time.monotonic(), flush=True)
        sent, due = sent + 1, time.monotonic() + EVERY_S
