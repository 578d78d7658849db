# SPDX-License-Identifier: Apache-2.0
"""The relay and a Redis that comes and goes."""
import signal

import pytest

from conftest import wait_until
from servers.launch import Redis


@pytest.fixture
def redis(postroom, tmp_path):
    if 'redis' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without redis')
    server = Redis(tmp_path)
    server.start()
    yield server
    server.close()


def K6_enqueued_message_is_in_the_stream(postroom, redis):
    ids = [postroom.enqueue('orders', '{"n":%d}' % n, '--key', 'k') for n in range(20)]
    result = postroom.ok('relay', '--to', f'redis://localhost:{redis.port}', '--drain')
    assert redis.ids('orders') == ids
    assert 'OUTBOX_SINK_WARNING' not in result.err


def D5_server_restart_uses_no_attempt_and_loses_no_message(postroom, redis):
    relay = postroom.start('relay', '--to', f'redis://127.0.0.1:{redis.port}/s-{{topic}}')
    ids = [postroom.enqueue('orders', '{}', '--key', 'k')]
    wait_until(lambda: postroom.show(ids[0])['status'] == 'delivered', 'the first delivery')
    redis.end()
    ids += [postroom.enqueue('orders', '{}', '--key', 'k') for _ in range(5)]
    while b'OUTBOX_SINK_UNREACHABLE' not in relay.stderr.readline():
        assert relay.poll() is None
    redis.start()
    wait_until(lambda: {row['status'] for row in postroom.rows()} == {'delivered'}, 'all deliveries')
    assert {row['attempts'] for row in postroom.rows()} == {1}
    arrived = redis.ids('s-orders')
    assert list(dict.fromkeys(arrived)) == ids
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0


def D4_relay_stops_while_its_server_hangs(postroom, redis):
    relay = postroom.start('relay', '--to', f'redis://127.0.0.1:{redis.port}', '--shutdown-grace', '300ms',
                           '--log-level', 'debug')
    postroom.enqueue('orders')
    wait_until(lambda: redis.ids('orders'), 'the first delivery')
    redis.process.send_signal(signal.SIGSTOP)
    id = postroom.enqueue('orders')
    wait_until(lambda: postroom.show(id)['status'] == 'processing', 'the claim')
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0
    assert postroom.show(id)['status'] == 'pending'


def G1_password_of_the_server_is_never_shown(postroom, redis):
    redis.ask('CONFIG', 'SET', 'requirepass', 'the-right-one')
    postroom.enqueue('orders')
    relay = postroom.start('relay', '--to', f'redis://:hidden-word@127.0.0.1:{redis.port}/x', '--log-level', 'debug')
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert line and b'hidden-word' not in line
    assert b'WRONGPASS' in line
    relay.send_signal(signal.SIGTERM)
    assert b'hidden-word' not in relay.stderr.read()


def G1_password_quoted_by_the_server_is_not_shown(postroom, redis):
    redis.end()
    redis.start('--rename-command', 'AUTH', '')
    id = postroom.enqueue('orders')
    relay = postroom.start('relay', '--to', f'redis://user:hidden-word@127.0.0.1:{redis.port}/x', '--log-level', 'debug')
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert line and b'hidden-word' not in line
    assert b'refuses AUTH (ERR)' in line
    relay.send_signal(signal.SIGTERM)
    assert b'hidden-word' not in relay.stderr.read()
    assert 'hidden-word' not in str(postroom.show(id))
