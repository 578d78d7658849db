# SPDX-License-Identifier: Apache-2.0
"""The relay, a consumer, and a RabbitMQ that comes and goes."""
import os
import shutil
import signal
import subprocess

import pytest

from conftest import wait_until
from test_redis import free_port

PROGRAMS = '/usr/lib/rabbitmq/bin/'  # those in the path ask for root


class RabbitMQ:
    """A server of this file's own; it takes seconds to start, so that its tests share it."""

    def __init__(self, directory):
        self.directory, self.process = str(directory), None
        self.port = free_port()
        nodes = free_port(self.port + 1)
        names = free_port(nodes + 1)
        (directory / 'plugins').write_text('[].\n')
        (directory / 'rabbitmq.conf').write_text('log.console = false\n')
        self.names = subprocess.Popen(['setpriv', '--pdeathsig=KILL', 'epmd', '-port', str(names)],
                                      env={**os.environ, 'ERL_EPMD_ADDRESS': '127.0.0.1'})
        self.environment = {
            **os.environ, 'HOME': self.directory, 'detached': '1', 'ERL_EPMD_PORT': str(names),
            'ERL_EPMD_ADDRESS': '127.0.0.1', 'RABBITMQ_NODENAME': f'postroom{nodes}@localhost',
            'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1', 'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_DIST_PORT': str(nodes), 'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': '+S 1:1 +sbwt none',
            **{f'RABBITMQ_{name}': os.path.join(self.directory, value) for name, value in (
                ('MNESIA_BASE', 'db'), ('LOG_BASE', 'log'), ('CONFIG_FILE', 'rabbitmq'),
                ('ENABLED_PLUGINS_FILE', 'plugins'), ('FEATURE_FLAGS_FILE', 'feature_flags'),
                ('PID_FILE', 'pid'))}}
        self.url = f'amqp://guest:guest@127.0.0.1:{self.port}'

    def start(self):
        self.process = subprocess.Popen(['setpriv', '--pdeathsig=KILL', PROGRAMS + 'rabbitmq-server'],
                                        env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL)
        wait_until(lambda: self.tool('declare-queue', '--durable', '--queue', 'ready').returncode == 0,
                   'rabbitmq-server')

    def end(self):
        self.process.kill()
        self.process.wait()

    def tool(self, name, *arguments):
        return subprocess.run([f'amqp-{name}', '--url', self.url + '/%2F', *arguments], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def queue(self, name):
        """A new one, durable and empty."""
        self.tool('delete-queue', '--queue', name)
        assert self.tool('declare-queue', '--durable', '--queue', name).returncode == 0
        return name

    def bodies(self, name):
        """All that the queue has; it is empty then."""
        found = []
        while (got := self.tool('get', '--queue', name)).returncode == 0:
            found.append(got.stdout.decode())
        return found


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    assert shutil.which('amqp-get') and os.path.exists(PROGRAMS), 'tools/install test brings them'
    rabbitmq = RabbitMQ(tmp_path_factory.mktemp('rabbitmq'))
    rabbitmq.start()
    yield rabbitmq
    rabbitmq.end()
    rabbitmq.names.kill()
    rabbitmq.names.wait()


@pytest.fixture
def rabbitmq(postroom, request):
    if 'amqp' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without amqp')
    return request.getfixturevalue('server')


def K8_what_is_enqueued_is_in_the_queue(postroom, rabbitmq):
    queue = rabbitmq.queue('orders')
    for n in range(20):
        postroom.enqueue(queue, '{"n":%d}' % n, '--key', 'k')
    postroom.ok('relay', '--to', rabbitmq.url, '--drain')
    assert rabbitmq.bodies(queue) == ['{"n":%d}' % n for n in range(20)]


def D5_a_server_that_dies_and_returns_costs_no_attempt_and_no_message(postroom, rabbitmq):
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


def D4_a_relay_stops_although_its_server_hangs(postroom, rabbitmq):
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


def test_a_password_is_never_shown(postroom, rabbitmq):
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


def N2_what_the_relay_sent_takes_effect_once_though_the_server_dies(postroom, rabbitmq, sql):
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
