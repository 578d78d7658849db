# SPDX-License-Identifier: Apache-2.0
"""The everyday life of a message on PostgreSQL, by every way in and all the way out.

This file runs over every version of the server (make check-postgres-versions).
"""
import json

import psycopg2
import pytest

from conftest import wait_until
from sink_files import messages_in


def rows(sql):
    return sql('SELECT topic, status FROM postroom_outbox ORDER BY seq')


def U1_migrating_again_changes_nothing(unmigrated):
    assert 'applied' in unmigrated.ok('migrate').out
    assert 'applied' not in unmigrated.ok('migrate').out
    assert unmigrated.ok('migrate', '--status').code == 0


def U1_concurrent_migrations_apply_once(unmigrated, sql):
    crowd = [unmigrated.start('migrate') for _ in range(6)]
    outputs = [process.communicate() for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 6, outputs
    assert sum(b'applied' in out for out, _ in outputs) == 1
    assert sql('SELECT version FROM postroom_migrations ORDER BY version') == [(1,), (2,), (3,)]


def E6_message_from_every_entry_point_is_delivered(postroom, sql, tmp_path):
    postroom.enqueue('by-program', '{"n": 1}', '--key', 'k', '--header', 'a=b')
    sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('by-insert', '{\"n\": 2}')")
    sql("SELECT * FROM postroom_enqueue('by-function', '{\"n\": 3}', key => 'k', "
        "headers => '{\"a\": \"b\"}', priority => 60)")
    (tmp_path / 'many').write_text('{"topic":"by-bulk","payload":{"n":4}}\n' * 3)
    postroom.ok('enqueue', '--ndjson', tmp_path / 'many')
    postroom.ok('relay', '--drain', '--to', 'file:out')
    messages = messages_in(tmp_path / 'out')
    assert sorted((m['topic'], m['payload']['n']) for m in messages) == [
        ('by-bulk', 4), ('by-bulk', 4), ('by-bulk', 4), ('by-function', 3), ('by-insert', 2),
        ('by-program', 1)]
    assert {m['topic']: m['headers'] for m in messages}['by-function'] == {'a': 'b'}
    assert {m['attempt'] for m in messages} == {1}
    assert messages[0]['topic'] == 'by-function', 'its head start'
    assert {status for _, status in rows(sql)} == {'delivered'}


def E3_same_key_is_one_row_from_every_producer(postroom, sql):
    first = postroom.enqueue('t', '{}', '--dedupe-key', 'd')
    again = postroom.ok('enqueue', 't', '{}', '--dedupe-key', 'd', '--json').object
    assert again == {'id': first, 'dedupe_key': 'd', 'duplicate': True}
    assert sql("SELECT id::text, duplicate FROM postroom_enqueue('t', '{}', dedupe_key => 'd')") == [
        (first, True)]
    with pytest.raises(psycopg2.errors.UniqueViolation):
        sql("INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('t', '{}', 'd')")
    assert rows(sql) == [('t', 'pending')]


def E1_business_change_and_message_are_atomic(postroom, place, database, sql):
    sql('CREATE TABLE orders (id int PRIMARY KEY)')
    connection = place.connect(database)
    connection.autocommit = False
    for n, end in [(1, connection.commit), (2, connection.rollback)]:
        with connection.cursor() as cursor:
            cursor.execute('INSERT INTO orders VALUES (%s)', (n,))
            cursor.execute("SELECT * FROM postroom_enqueue('orders.created', %s)",
                           (json.dumps({'id': n}),))
        end()
    connection.close()
    assert sql('SELECT id FROM orders') == [(1,)]
    assert sql("SELECT payload FROM postroom_outbox") == [({'id': 1},)]


def X1_dead_letters_are_listed_shown_and_retried(postroom, tmp_path):
    id = postroom.enqueue('t', '{"n": 1}')
    postroom.ok('relay', '--drain', '--to', 'exec:echo no such order >&2; exit 65')
    dead, = postroom.rows('--status', 'dead')
    assert (dead['id'], dead['attempts']) == (id, 1) and 'no such order' in dead['last_error']
    postroom.ok('retry', '--dead')
    assert postroom.show(id)['status'] == 'pending'
    postroom.ok('relay', '--drain', '--to', 'file:out')
    message, = messages_in(tmp_path / 'out')
    assert (message['id'], message['attempt']) == (id, 1)


def X2_delivered_messages_are_purged(postroom, sql):
    for n in range(20):
        sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', %s)", str(n))
    postroom.ok('relay', '--drain', '--to', 'null:')
    assert postroom.stats()['delivered'] == 20
    postroom.ok('purge', '--status', 'delivered', '--yes')
    assert rows(sql) == []


def R1_failing_message_is_retried_until_it_succeeds(postroom):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--base-delay', '20ms', '--to',
                'exec:echo >> tries; test $(wc -l < tries) -ge 4')
    row = postroom.show(id)
    assert (row['status'], row['attempts'], row['last_error']) == ('delivered', 4, None)


def C4_two_relays_and_four_producers_deliver_everything_once(postroom, tmp_path):
    relays = [postroom.start('relay', '--to', f'file:out{n}', '--batch-size', '20', '--log-level',
                             'warn') for n in range(2)]
    producers = []
    for n in range(4):
        path = tmp_path / f'in{n}'
        path.write_text(''.join('{"topic":"t","payload":[%d,%d]}\n' % (n, i) for i in range(400)))
        producers.append(postroom.start('enqueue', '--ndjson', path, '--batch-size', '10'))
    for producer in producers:
        _, errors = producer.communicate()
        assert producer.returncode == 0, errors
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    for relay in relays:
        relay.terminate()
        _, errors = relay.communicate()
        assert (relay.returncode, errors) == (0, b'')
    found = [tuple(m['payload']) for n in range(2) for m in messages_in(tmp_path / f'out{n}')]
    assert sorted(found) == [(n, i) for n in range(4) for i in range(400)]


def U1_separate_schema_is_created_and_used(unmigrated, sql, tmp_path):
    schema = 'Out "box"'
    unmigrated.ok('migrate', '--schema', schema)
    assert sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'postroom%%' AND relnamespace = "
               "'public'::regnamespace") == [(0,)]
    unmigrated.ok('enqueue', 't', '1', '--schema', schema)
    sql('INSERT INTO "Out ""box""".postroom_outbox (topic, payload) VALUES (%s, %s)', 't', '2')
    sql('SELECT "Out ""box""".postroom_enqueue(%s, %s)', 't', '3')
    unmigrated.ok('relay', '--drain', '--to', 'file:out', '--schema', schema)
    assert sorted(m['payload'] for m in messages_in(tmp_path / 'out')) == [1, 2, 3]
    assert 'no Postroom tables' in unmigrated.fails(1, 'stats')


def D3_a_sleeping_relay_is_woken(postroom, relay, sql, tmp_path):
    """Its poll interval is longer than the test's timeout: only a notification can have woken it."""
    relay('--to', 'file:out', '--poll-interval', '8h', '--lease', '24h')
    wait_until(lambda: sql('SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 + 500 '
                           'FROM postroom_notify_until') == [(True,)], 'the relay to sleep')
    postroom.enqueue()
    wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')


def I1_the_key_is_the_same_in_sql(postroom, sql):
    parts = ['0B7D', 'Billing', 'inv:7', 'Paid', '2']
    assert sql('SELECT postroom_key(%s, %s, %s, %s, %s)::text', *parts) == [
        (postroom.ok('key', *parts).out.strip(),)]
