# SPDX-License-Identifier: Apache-2.0
"""The relay, a consumer, and a RabbitMQ that comes and goes."""
import shutil
import signal

import pytest

from conftest import wait_until
from servers.launch import RabbitMQ


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    """It takes seconds to start, so the tests of a file share it."""
    assert shutil.which('amqp-get'), 'tools/install test brings it'
    rabbitmq = RabbitMQ(tmp_path_factory.mktemp('rabbitmq'))
    rabbitmq.start()
    yield rabbitmq
    rabbitmq.close()


@pytest.fixture
def rabbitmq(postroom, request):
    if 'amqp' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without amqp')
    return request.getfixturevalue('server')


def K8_enqueued_message_is_in_the_queue(postroom, rabbitmq):
    queue = rabbitmq.queue('orders')
    for n in range(20):
        postroom.enqueue(queue, '{"n":%d}' % n, '--key', 'k')
    postroom.ok('relay', '--to', rabbitmq.url, '--drain')
    assert rabbitmq.bodies(queue) == ['{"n":%d}' % n for n in range(20)]


def D5_server_restart_uses_no_attempt_and_loses_no_message(postroom, rabbitmq):
    queue = rabbitmq.queue('orders')
    relay = postroom.start('relay', '--to', rabbitmq.url + '//?routing_key=' + queue)
    first = postroom.enqueue('any', '{"n":0}', '--key', 'k')
    wait_until(lambda: postroom.show(first)['status'] == 'delivered', 'the first delivery')
    rabbitmq.end()
    for n in range(1, 6):
        postroom.enqueue('any', '{"n":%d}' % n, '--key', 'k')
    while b'OUTBOX_SINK_UNREACHABLE' not in relay.stderr.readline():
        assert relay.poll() is None
    rabbitmq.start()
    wait_until(lambda: {row['status'] for row in postroom.rows()} == {'delivered'}, 'all deliveries')
    assert {row['attempts'] for row in postroom.rows()} == {1}
    assert list(dict.fromkeys(rabbitmq.bodies(queue))) == ['{"n":%d}' % n for n in range(6)]
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0


def D4_relay_stops_while_its_server_hangs(postroom, rabbitmq):
    queue = rabbitmq.queue('orders')
    relay = postroom.start('relay', '--to', rabbitmq.url, '--shutdown-grace', '300ms')
    first = postroom.enqueue(queue)
    wait_until(lambda: postroom.show(first)['status'] == 'delivered', 'the first delivery')
    rabbitmq.process.send_signal(signal.SIGSTOP)
    try:
        id = postroom.enqueue(queue)
        wait_until(lambda: postroom.show(id)['status'] == 'processing', 'the claim')
        relay.send_signal(signal.SIGTERM)
        assert relay.wait() == 0
        assert postroom.show(id)['status'] == 'pending'
    finally:
        rabbitmq.process.send_signal(signal.SIGCONT)


def G1_password_of_the_server_is_never_shown(postroom, rabbitmq):
    postroom.enqueue('orders')
    relay = postroom.start('relay', '--to', f'amqp://guest:hidden-word@127.0.0.1:{rabbitmq.port}/', '--log-level',
                           'debug')
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert line and b'hidden-word' not in line
    assert b'ACCESS_REFUSED' in line
    relay.send_signal(signal.SIGTERM)
    assert b'hidden-word' not in relay.stderr.read()


def N2_message_of_the_relay_takes_effect_once_if_the_server_crashes(postroom, rabbitmq, sql):
    queue = rabbitmq.queue('orders')
    sql('CREATE TABLE ledger (n INTEGER, topic TEXT, key TEXT)')

    def send(numbers):
        for n in numbers:
            postroom.enqueue(queue, '{"n":%d}' % n, '--key', 'k')
        postroom.ok('relay', '--to', rabbitmq.url, '--drain')
        wait_until(lambda: len(sql('SELECT n FROM ledger')) > max(numbers), 'the effects')

    consume = postroom.start('consume', '--handler', 'ledger', '--from', f'{rabbitmq.url}//{queue}', '--sql',
                             "INSERT INTO ledger SELECT ?1 ->> 'n', ?3, ?4")
    send(range(20))
    rabbitmq.end()
    while b'INBOX_SOURCE_UNREACHABLE' not in consume.stderr.readline():
        assert consume.poll() is None
    rabbitmq.start()
    send(range(20, 40))
    consume.send_signal(signal.SIGTERM)
    assert consume.wait() == 0
    assert sql('SELECT * FROM ledger ORDER BY rowid') == [(n, queue, 'k') for n in range(40)]
