#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""worker.py URL: delivers messages until Ctrl-C, through psycopg2 and plain SQL."""
import sys
import time
import uuid

import psycopg2

LEASE = 30  # seconds


def deliver(topic, key, payload):
    if payload['total'] <= 0:
        raise ValueError(f'order {payload["order"]} costs nothing')
    print(topic, key, payload['order'], flush=True)


def work(sql, worker):
    """Delivers a batch; how many messages it had."""
    start, failed, untried = time.monotonic(), set(), []
    sql.execute('SELECT id, claims, topic, key, payload FROM postroom_claim(%s, 10, %s)',
                (worker, f'{LEASE} s'))
    for id, claims, topic, key, payload in (messages := sql.fetchall()):
        # Never behind a failed message of its key, nor when the lease may end during the attempt.
        if key in failed or time.monotonic() - start > LEASE / 2:
            untried.append((id, claims))
            continue
        try:
            deliver(topic, key, payload)
        except Exception as error:
            sql.execute('SELECT postroom_nack(%s, %s, %s, %s)',
                        (worker, id, claims, str(error)))
            failed.add(key or id)
        else:
            sql.execute('SELECT postroom_ack(%s, %s::uuid[], %s)',
                        (worker, [id], [claims]))
    if untried:
        sql.execute('SELECT postroom_release(%s, %s::uuid[], %s)',
                    (worker, *map(list, zip(*untried))))
    return len(messages)


db = psycopg2.connect(sys.argv[1])
db.autocommit = True  # each call is a transaction of its own
worker = str(uuid.uuid4())
while True:
    if work(db.cursor(), worker) == 0:
        time.sleep(1)
