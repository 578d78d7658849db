# SPDX-License-Identifier: Apache-2.0
"""producer.py DATABASE LEDGER NAME PROGRAM: enqueues until it is killed.

One transaction a round, on a connection of its own: a business row and a
message, with plain SQL, or the same by the program. Payloads known to be
committed goes into its ledger, one word a line; what it rolled back goes
nowhere. Rounds that end in a rollback carry the word "never".
"""
import json
import os
import random
import sqlite3
import subprocess
import sys

DATABASE, LEDGER, NAME, PROGRAM = sys.argv[1:]


def note(ledger, word):
    os.write(ledger, f'{word}\n'.encode())


def by_sql(connection, word):
    connection.execute('BEGIN IMMEDIATE')
    connection.execute('INSERT INTO business (word) VALUES (?)', (word,))
    connection.execute('INSERT INTO postroom_outbox (topic, payload) VALUES (?, ?)',
                       ('storm', json.dumps({'word': word})))
    connection.execute('COMMIT')


def and_not(connection, word):
    connection.execute('BEGIN IMMEDIATE')
    connection.execute('INSERT INTO business (word) VALUES (?)', (word,))
    connection.execute('INSERT INTO postroom_outbox (topic, payload) VALUES (?, ?)',
                       ('storm', json.dumps({'word': word})))
    connection.execute('ROLLBACK')


def by_program(word):
    subprocess.run([PROGRAM, '--db', DATABASE, '--log-level', 'off', 'enqueue', 'storm',
                    json.dumps({'word': word})], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL)


def main():
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    connection = sqlite3.connect(DATABASE, timeout=300, isolation_level=None)
    for n in range(10 ** 9):
        chance = random.random()
        if chance < 0.1:
            and_not(connection, f'{NAME}-{n}-never')
        elif chance < 0.2:
            by_program(f'{NAME}-{n}-program')
            note(ledger, f'{NAME}-{n}-program')
        else:
            by_sql(connection, f'{NAME}-{n}')
            note(ledger, f'{NAME}-{n}')


main()
