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
from pgsql.files import words_in
from pgsql.ledger import Crowd
from servers.test_amqp import RabbitMQ
from servers.test_kafka import Kafka
from servers.test_nats import Nats
from servers.test_redis import Redis

PRODUCER = pathlib.Path(__file__).parent.parent / 'crash' / 'producer.py'
SOAK = os.environ.get('POSTROOM_SOAK') == '1'
KILLS = 120 if SOAK else 15
QUICK = ['--lease', '2s', '--base-delay', '10ms', '--max-delay', '1s', '--max-attempts', '1000', '--log-level', 'warn']


class Broker:
    consumers = 2

    def restart(self):
        self.server.end()
        self.server.start()

    def end(self):
        self.server.end()


class OnRedis(Broker):
    def __init__(self, directory):
        self.server = Redis(str(directory))
        self.server.start()
        self.sink = self.source = f'redis://127.0.0.1:{self.server.port}/orders'


class OnNats(Broker):
    def __init__(self, directory):
        self.server = Nats(str(directory))
        self.server.start()
        # What comes twice is not to be sorted out by the server.
        assert 'error' not in self.server.ask('$JS.API.STREAM.CREATE.SHOP', name='SHOP', subjects=['orders'],
                                              storage='file', duplicate_window=100_000_000)
        self.sink = f'nats://127.0.0.1:{self.server.port}/orders'
        self.source = f'nats://127.0.0.1:{self.server.port}/SHOP'


class OnRabbitMQ(Broker):
    def __init__(self, directory):
        self.server = RabbitMQ(directory)
        self.server.start()
        self.server.queue('orders')
        self.sink = self.server.url + '/%2F/?routing_key=orders'
        self.source = self.server.url + '/%2F/orders'

    def end(self):
        super().end()
        self.server.names.kill()
        self.server.names.wait()


class OnKafka(Broker):
    # The stand-in's own assertion ends it when members come back in the middle of a rebalance.
    consumers = 1

    def __init__(self, directory):
        self.server = Kafka(str(directory))
        self.server.start()
        self.sink = self.source = f'kafka://127.0.0.1:{self.server.port}/orders?kafka.topic.metadata.refresh.interval.ms=500'

    def end(self):
        super().end()
        self.server.keeper.kill()
        self.server.keeper.wait()


BROKERS = {'redis': OnRedis, 'nats': OnNats, 'amqp': OnRabbitMQ, 'kafka': OnKafka}


@pytest.fixture(params=BROKERS)
def broker(request, postroom, tmp_path):
    if request.param not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip(f'built without {request.param}')
    directory = tmp_path / 'broker'
    directory.mkdir()
    broker = BROKERS[request.param](directory)
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


def N2_every_order_is_in_the_books_once_whoever_is_killed(postroom, sql, broker, shop, tmp_path):
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
        # What the killed relays had is tried one by one, however long that takes.
        left = shop.stats()['backlog']
        while left > 0:
            wait_until(lambda: shop.stats()['backlog'] < left, 'the relay')
            left = shop.stats()['backlog']
        wait_until(lambda: int(sql('SELECT count(DISTINCT word) FROM books')[0][0]) == len(words), 'the books')
    finally:
        for crowd in crowds:
            crowd.end()
    # What is still in the broker has been there before.
    postroom.ok(*consume, '--drain')
    booked = [word for word, in sql('SELECT word FROM books')]
    assert sorted(booked) == sorted(words)
    assert {word for path in ledgers for word in words_in(path)} <= words
    assert not [word for word in booked if word.endswith('-never')]
