# SPDX-License-Identifier: Apache-2.0
"""sql_worker.py URL OUT LEASE SEED: a worker in SQL alone, until it is killed. Delivers by appending
"KEY PAYLOAD" to OUT. It fails now and then, releases, settles late, and loses its connection.
"""
import os
import random
import sys
import time
import uuid

import psycopg2

URL, OUT, LEASE, SEED = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
# A publish begins only in the first part of a lease: its end is never later than the database's.
MARGIN = 0.5


class Worker:
    def __init__(self):
        self.out = os.open(OUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.id = str(uuid.uuid4())
        self.connect()

    def connect(self):
        self.connection = psycopg2.connect(URL, application_name='sql_worker')
        self.connection.autocommit = True

    def call(self, statement, *parameters):
        """Another transaction may have been chosen to survive a deadlock; then once more."""
        while True:
            try:
                with self.connection.cursor() as cursor:
                    cursor.execute(statement, parameters)
                    return cursor.fetchall()
            except psycopg2.errors.DeadlockDetected:
                pass

    def settle(self, function, messages):
        if messages:
            self.call(f'SELECT postroom_{function}(%s, %s::uuid[], %s)', self.id,
                      [id for id, _, _, _ in messages], [claims for _, claims, _, _ in messages])

    def nack(self, message):
        id, claims, _, _ = message
        self.call("SELECT postroom_nack(%s, %s, %s, 'no luck', retry_in => %s, max_attempts => 1000)", self.id,
                  id, claims, f'{random.randrange(10, 50)} ms')

    def deliver(self, messages, began):
        """Messages that were delivered, and that were not tried."""
        delivered, untried, failed = [], [], set()
        for message in messages:
            _, _, key, payload = message
            if key in failed or time.monotonic() - began > LEASE * MARGIN:
                untried.append(message)
            elif random.random() < 0.15:
                self.nack(message)
                failed.add(key)
            else:
                os.write(self.out, f'{key} {payload}\n'.encode())
                delivered.append(message)
                if random.random() < 0.3:
                    self.settle('ack', [delivered.pop()])
        return delivered, untried

    def run_once(self):
        began = time.monotonic()
        messages = self.call('SELECT id, claims, key, payload::text FROM postroom_claim(%s, %s, %s, max_attempts => 1000)',
                             self.id, random.randrange(1, 12), f'{LEASE} s')
        delivered, untried = self.deliver(messages, began)
        chance = random.random()
        if chance < 0.02:
            time.sleep(LEASE * 1.1)  # a late settle
        elif chance < 0.05:
            self.connection.close()
            self.connect()
        elif chance < 0.2:
            self.settle('renew', delivered + untried)
        self.settle('ack', delivered)
        self.settle('release', untried)
        if not messages:
            time.sleep(0.02)


random.seed(SEED)
worker = Worker()
while True:
    worker.run_once()
