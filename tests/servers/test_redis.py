# SPDX-License-Identifier: Apache-2.0
"""The relay and a Redis that comes and goes."""
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from conftest import wait_until


def free_port(first=None):
    """Below the ports that the system gives to clients: none of those can take it between two starts."""
    first = first or 11000 + os.getpid() * 13 % 20000
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
            except OSError:
                continue
            return port
    raise AssertionError('no free port')


class Redis:
    """A server of the test's own, which keeps what it has acknowledged."""

    def __init__(self, directory):
        self.directory, self.process = directory, None
        self.path = os.path.join(directory, 'redis.sock')
        self.port = free_port()

    def start(self, *settings):
        self.process = subprocess.Popen(
            ['setpriv', '--pdeathsig=KILL', 'redis-server', '--port', str(self.port), '--bind', '127.0.0.1',
             '--unixsocket', self.path, '--dir', self.directory, '--appendonly', 'yes', '--appendfsync', 'always',
             '--save', '', *settings], stdout=subprocess.DEVNULL)
        wait_until(lambda: self.ask('PING') == 'PONG', 'redis-server')

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def ask(self, *command):
        done = subprocess.run(['redis-cli', '-s', self.path, '--json', *command], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            return json.loads(done.stdout) if done.returncode == 0 else None
        except ValueError:  # what it says while it loads is none
            return None

    def ids(self, stream):
        """Of the entries, in their order, each as often as it is there."""
        return [dict(zip(fields[::2], fields[1::2]))['id'] for _, fields in self.ask('XRANGE', stream, '-', '+')]


@pytest.fixture
def redis(postroom, tmp_path):
    if 'redis' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without redis')
    assert shutil.which('redis-server'), 'tools/install test brings it'
    server = Redis(str(tmp_path))
    server.start()
    yield server
    if server.process.poll() is None:
        server.end()


def K6_what_is_enqueued_is_in_the_stream(postroom, redis):
    ids = [postroom.enqueue('orders', '{"n":%d}' % n, '--key', 'k') for n in range(20)]
    result = postroom.ok('relay', '--to', f'redis://localhost:{redis.port}', '--drain')
    assert redis.ids('orders') == ids
    assert 'OUTBOX_SINK_WARNING' not in result.err


def D5_a_server_that_dies_and_returns_costs_no_attempt_and_no_message(postroom, redis):
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


def D4_a_relay_stops_although_its_server_hangs(postroom, redis):
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


def test_a_password_is_never_shown(postroom, redis):
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


def test_a_password_is_not_repeated_where_the_server_quotes_it(postroom, redis):
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
