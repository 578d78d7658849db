# SPDX-License-Identifier: Apache-2.0
"""producer.py URL LEDGER NAME PROGRAM: enqueues until it is killed, whatever the server does.

One transaction a round: a business row and a message, by a plain INSERT or by
postroom_enqueue(), or the message alone by the program. Payloads known to be
committed goes into its ledger, one word a line; what it rolled back, or does not
know of, goes nowhere. Rounds that end in a rollback carry the word "never".
"""
import json
import os
import random
import subprocess
import sys
import time

import psycopg2

URL, LEDGER, NAME, PROGRAM = sys.argv[1:]
INSERT = 'INSERT INTO postroom_outbox (topic, payload) VALUES (%s, %s)'
FUNCTION = 'SELECT postroom_enqueue(%s, %s)'


def connect():
    while True:
        try:
            return psycopg2.connect(URL, application_name='producer')
        except psycopg2.OperationalError:
            time.sleep(0.05)


def write(connection, word, statement, end):
    with connection.cursor() as cursor:
        cursor.execute('INSERT INTO business (word) VALUES (%s)', (word,))
        cursor.execute(statement, ('storm', json.dumps({'word': word})))
    end()


def by_program(word):
    return subprocess.run([PROGRAM, '--db', URL, '--log-level', 'off', 'enqueue', 'storm',
                           json.dumps({'word': word})], check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def round(connection, n):
    """The word that is committed by now, or None."""
    chance = random.random()
    statement = random.choice([INSERT, FUNCTION])
    if chance < 0.1:
        write(connection, f'{NAME}-{n}-never', statement, connection.rollback)
        return None
    if chance < 0.15:
        word = f'{NAME}-{n}-program'
        return word if by_program(word) else None
    write(connection, f'{NAME}-{n}', statement, connection.commit)
    return f'{NAME}-{n}'


def main():
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    connection = connect()
    for n in range(10 ** 9):
        try:
            word = round(connection, n)
        except psycopg2.Error:
            connection.close()
            connection = connect()
            continue
        if word:
            os.write(ledger, f'{word}\n'.encode())


main()
