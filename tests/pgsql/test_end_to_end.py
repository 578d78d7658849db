# SPDX-License-Identifier: Apache-2.0
"""Two services, each with a database of its own, and a broker between them. Everything in it is killed.

The shop (SQLite) writes orders and messages; a relay brings them to the broker; `postroom consume`
brings them into the books (PostgreSQL). At the end every order is in the books exactly once.
"""
import os
import pathlib
import random
import sqlite3
import sys

import pytest

from conftest import PROGRAM, Postroom, wait_until
from sink_files import words_in
from pgsql.ledger import Crowd
from servers.brokers import BROKERS, start_broker

PRODUCER = pathlib.Path(__file__).parent.parent / 'crash' / 'producer.py'
SOAK = os.environ.get('POSTROOM_SOAK') == '1'
KILLS = 120 if SOAK else 15
QUICK = ['--lease', '2s', '--base-delay', '10ms', '--max-delay', '1s', '--max-attempts', '1000', '--log-level', 'warn']


@pytest.fixture(params=BROKERS)
def broker(request, postroom, tmp_path):
    broker = start_broker(request.param, postroom, tmp_path)
    yield broker
    broker.end()


@pytest.fixture
def shop(tmp_path):
    directory = tmp_path / 'shop'
    directory.mkdir()
    shop = Postroom(directory / 'shop.db', directory)
    shop.ok('migrate')
    with sqlite3.connect(shop.db) as connection:
        connection.execute('CREATE TABLE business (word TEXT PRIMARY KEY)')
    connection.close()
    yield shop
    shop.end()


def ask(shop, statement):
    connection = sqlite3.connect(shop.db, timeout=60)
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()


def send_some_again(shop):
    """On the wire they are duplicates of what has arrived."""
    ask(shop, "UPDATE postroom_outbox SET status = 'pending', delivered_at = NULL WHERE seq IN "
        "(SELECT seq FROM postroom_outbox WHERE status = 'delivered' ORDER BY random() LIMIT 5)")


def N2_every_event_takes_effect_once_after_any_kill(postroom, sql, broker, shop, tmp_path):
    postroom.ok('migrate')
    sql('CREATE TABLE books (word text NOT NULL)')
    statement = "INSERT INTO books (word) SELECT $1::jsonb->>'word'"
    ledgers = [tmp_path / f'ledger{n}' for n in range(2)]
    producers = Crowd(shop, 'producers', [
        lambda start, n=n: [sys.executable, str(PRODUCER), shop.db, str(ledgers[n]), f'p{n}s{start}', PROGRAM]
        for n in range(2)])
    relays = Crowd(shop, 'relays', [lambda start: [PROGRAM, 'relay', '--to', broker.sink, *QUICK]])
    consume = ['consume', '--handler', 'books', '--from', broker.source, '--sql', statement, *QUICK]
    consumers = Crowd(postroom, 'consumers', [lambda start: [PROGRAM, *consume]] * broker.consumers)
    crowds = [producers, relays, consumers]
    try:
        for n in range(KILLS):
            before = len(words_in(ledgers[0]))
            wait_until(lambda: len(words_in(ledgers[0])) > before, 'another order')
            random.choice(crowds).kill_one()
            if n % 8 == 3:
                broker.restart()
            send_some_again(shop)
        producers.end()
        words = {word for word, in ask(shop, "SELECT json_extract(payload, '$.word') FROM postroom_outbox")}
        # Messages of the killed relays are retried one by one, however long that takes.
        left = shop.stats()['backlog']
        while left > 0:
            wait_until(lambda: shop.stats()['backlog'] < left, 'the relay')
            left = shop.stats()['backlog']
        try:
            wait_until(lambda: int(sql('SELECT count(DISTINCT word) FROM books')[0][0]) == len(words), 'the books')
        except AssertionError:
            print('missing:', sorted(words - {word for word, in sql('SELECT word FROM books')})[:20])
            print('broker:', broker.describe())
            print('consumers:', consumers.log.read_text()[-5000:])
            raise
    finally:
        for crowd in crowds:
            crowd.end()
    # The events that are still in the broker are duplicates.
    postroom.ok(*consume, '--drain')
    booked = [word for word, in sql('SELECT word FROM books')]
    assert sorted(booked) == sorted(words)
    assert {word for path in ledgers for word in words_in(path)} <= words
    assert not [word for word in booked if word.endswith('-never')]
