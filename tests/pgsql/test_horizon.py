# SPDX-License-Identifier: Apache-2.0
"""A forgotten open transaction holds back vacuum for as long as it stays open (C8)."""
import json

import pytest

from conftest import wait_until
from sink_files import messages_in
from pgsql.server import SOAK

MESSAGES = 300_000 if SOAK else 12_000


@pytest.fixture
def forgotten(postroom, place, database):
    """A snapshot from before the first message."""
    connection = place.connect(database)
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        cursor.execute('SELECT count(*) FROM postroom_outbox')
    yield connection
    connection.close()


def bulk(postroom, tmp_path, first, count):
    path = tmp_path / 'many'
    with open(path, 'w', encoding='utf-8') as file:
        for n in range(first, first + count):
            file.write(json.dumps({'topic': 't', 'payload': n}) + '\n')
    postroom.ok('enqueue', '--ndjson', path)


def C8_everything_is_delivered_while_a_transaction_stays_open(postroom, relay, forgotten, place,
                                                              database, sql, tmp_path):
    """Also what was inserted first and committed late, and what has a head start."""
    late = place.connect(database)
    late.autocommit = False
    with late.cursor() as cursor:
        cursor.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('late', '-1')")
    running = relay('--to', 'file:out', '--batch-size', '100', '--log-level', 'warn')
    bulk(postroom, tmp_path, 0, MESSAGES)
    wait_until(lambda: sql("SELECT count(*) > %s FROM postroom_outbox WHERE status = 'delivered'",
                           MESSAGES // 2) == [(True,)], 'half of them')
    late.commit()
    late.close()
    sql("SELECT postroom_enqueue('early', '-2', priority => 3600)")
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status <> 'delivered'") == [
        (0,)], 'all to be delivered')
    running.stop()
    numbers = [message['payload'] for message in messages_in(tmp_path / 'out')]
    assert sorted(numbers) == list(range(-2, MESSAGES))
    # Its snapshot is still the old one: no version of any row could be cleared away.
    with forgotten.cursor() as cursor:
        cursor.execute('SELECT count(*) FROM postroom_outbox')
        assert cursor.fetchone() == (0,)
