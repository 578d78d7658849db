# SPDX-License-Identifier: Apache-2.0
"""Brokers that deliver events once more after the inbox has purged them."""
import time

import pytest

from servers.launch import Nats, Redis
from servers.test_kafka import Kafka

DAY_MS = 86_400_000
BOOK = "INSERT INTO ledger SELECT ?1 ->> 'n'"
ACCEPT = '--accept-replay'


def now_ms():
    return int(time.time() * 1000)


@pytest.fixture
def ledger(postroom, sql):
    postroom.ok('migrate')
    sql('CREATE TABLE ledger (n INTEGER)')
    return lambda: [row[0] for row in sql('SELECT n FROM ledger ORDER BY rowid')]


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path)
    server.start()
    yield server
    server.close()


@pytest.fixture
def nats(tmp_path):
    server = Nats(tmp_path)
    server.start()
    yield server
    server.close()


def arguments(source, *more, handler='h'):
    return ('consume', '--handler', handler, '--from', source, '--id-path', 'n', '--sql', BOOK, '--drain', *more)


def purge(postroom):
    postroom.ok('inbox', 'purge', '--status', 'completed', '--older-than', '0s', '--yes')


def add(redis, age_days, *numbers):
    """Entries as if they had been written so many days ago."""
    for n in numbers:
        assert redis.ask('XADD', 'orders', f'{now_ms() - age_days * DAY_MS}-{n}', 'n', str(n))


def orders(redis):
    return f'redis://127.0.0.1:{redis.port}/orders'


def N4_recreated_group_does_not_handle_purged_events_again(postroom, ledger, redis):
    add(redis, 40, *range(1, 6))
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    assert redis.ask('XGROUP', 'DESTROY', 'orders', 'h') == 1
    for _ in range(2):  # the second time, the entries are pending in the new group
        result = postroom(*arguments(orders(redis)))
        assert result.code == 1, result
        assert 'INBOX_SOURCE_REPLAY' in result.err and ACCEPT in result.err
        assert ledger() == [1, 2, 3, 4, 5]
    postroom.ok(*arguments(orders(redis), ACCEPT))
    assert ledger() == [1, 2, 3, 4, 5] * 2
    add(redis, 0, 6)
    postroom.ok(*arguments(orders(redis)))
    assert ledger() == [1, 2, 3, 4, 5] * 2 + [6]


def N4_another_group_of_same_handler_does_not_handle_purged_events_again(postroom, ledger, redis):
    add(redis, 40, 1)
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    assert postroom(*arguments(orders(redis) + '?group=another')).code == 1
    assert ledger() == [1]


def N4_events_still_in_the_inbox_are_skipped_as_duplicates(postroom, ledger, redis):
    add(redis, 40, 1, 2)
    postroom.ok(*arguments(orders(redis)))
    redis.ask('XGROUP', 'DESTROY', 'orders', 'h')
    add(redis, 0, 3)
    postroom.ok(*arguments(orders(redis)))
    assert ledger() == [1, 2, 3]


def N4_consumer_that_was_down_for_longer_than_retention_gets_unread_events(postroom, ledger, redis):
    add(redis, 41, 1, 2)
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    add(redis, 40, 3, 4)
    postroom.ok(*arguments(orders(redis)))
    assert ledger() == [1, 2, 3, 4]


def N4_new_handler_begins_at_the_oldest_event(postroom, ledger, redis):
    add(redis, 40, 1, 2)
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    postroom.ok(*arguments(orders(redis), handler='other'))
    assert ledger() == [1, 2, 1, 2]


def N4_recreated_stream_with_new_events_is_read(postroom, ledger, redis):
    add(redis, 40, 1, 2)
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    redis.ask('DEL', 'orders')
    add(redis, 0, 3)
    postroom.ok(*arguments(orders(redis)))
    assert ledger() == [1, 2, 3]


def N4_entry_of_dead_consumer_is_taken_over_from_old_backlog(postroom, ledger, redis):
    add(redis, 40, 1, 2)
    postroom.ok(*arguments(orders(redis)))
    purge(postroom)
    add(redis, 39, 3, 4, 5)
    # Another consumer of the group got the entry 3, and died.
    assert redis.ask('XREADGROUP', 'GROUP', 'h', 'dead', 'COUNT', '1', 'STREAMS', 'orders', '>')
    postroom.ok(*arguments(orders(redis), '--lease', '1s', '--timeout', '500ms'))
    assert sorted(ledger()) == [1, 2, 3, 4, 5]


def N4_running_consumer_stops_at_a_replay(postroom, ledger, redis):
    add(redis, 40, 1, 2)
    consumer = postroom.start(*[word for word in arguments(orders(redis)) if word != '--drain'])
    while len(ledger()) < 2:
        assert consumer.poll() is None
    purge(postroom)
    redis.ask('XGROUP', 'DESTROY', 'orders', 'h')
    _, log = consumer.communicate()
    assert consumer.returncode == 1
    assert b'INBOX_SOURCE_REPLAY' in log
    assert ledger() == [1, 2]


def N4_recreated_durable_consumer_does_not_handle_purged_events_again(postroom, ledger, nats):
    source = f'nats://127.0.0.1:{nats.port}/SHOP'
    assert 'error' not in nats.ask('$JS.API.STREAM.CREATE.SHOP', name='SHOP', subjects=['orders'])
    for n in range(1, 4):
        nats.ask('orders', n=n)
    postroom.ok(*arguments(source))
    purge(postroom)
    assert nats.ask('$JS.API.CONSUMER.DELETE.SHOP.h')['success']
    for _ in range(2):
        result = postroom(*arguments(source))
        assert result.code == 1 and 'INBOX_SOURCE_REPLAY' in result.err, result
        assert ledger() == [1, 2, 3]
    postroom.ok(*arguments(source, ACCEPT))
    assert ledger() == [1, 2, 3] * 2


def N4_expired_offsets_do_not_handle_purged_events_again(postroom, ledger, tmp_path):
    if 'kafka' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without kafka')
    kafka = Kafka(tmp_path)
    kafka.start()
    # A group without offsets: that is what one is whose offsets have expired.
    source = f'kafka://127.0.0.1:{kafka.port}/orders?group='
    for n in range(1, 4):
        postroom.enqueue('orders', '{"n":%d}' % n)
    postroom.ok('relay', '--to', f'kafka://127.0.0.1:{kafka.port}/orders', '--drain')
    postroom.ok(*arguments(source + 'one'))
    assert sorted(ledger()) == [1, 2, 3]
    purge(postroom)
    result = postroom(*arguments(source + 'two'))
    assert result.code == 1 and 'INBOX_SOURCE_REPLAY' in result.err, result
    assert sorted(ledger()) == [1, 2, 3]
    kafka.close()
