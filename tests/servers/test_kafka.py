# SPDX-License-Identifier: Apache-2.0
"""The relay and a Kafka broker that comes and goes. What has arrived is read by kcat."""
import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import PROGRAM, wait_until
from servers.test_redis import free_port

BROKER = os.path.join(os.path.dirname(PROGRAM), 'tests', 'kafka-broker')


class Kafka:
    """See kafka_broker.c: one process keeps the log, another is the broker that clients see."""

    def __init__(self, directory):
        self.directory, self.process = directory, None
        self.port = free_port()
        self.keeper = self.spawn('keep')
        wait_until(lambda: os.path.exists(os.path.join(directory, 'kept')), 'the log')
        with open(os.path.join(directory, 'advertised'), 'w', encoding='ascii') as file:
            file.write(str(self.port))

    def spawn(self, *args):
        return subprocess.Popen(['setpriv', '--pdeathsig=KILL', BROKER, *args], cwd=self.directory,
                                stderr=subprocess.DEVNULL)

    def answers(self):
        # Its own assertions fail now and then when members of a group come back in the middle of a rebalance.
        if -signal.SIGABRT in (self.keeper.poll(), self.process.poll()):
            pytest.skip("librdkafka's stand-in for a broker has ended itself")
        return subprocess.run(['kcat', '-L', '-b', f'127.0.0.1:{self.port}'], check=False,
                              capture_output=True).returncode == 0

    def start(self):
        self.process = self.spawn('front', str(self.port))
        wait_until(self.answers, 'the broker')

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def records(self, topic):
        """In the order of their partitions."""
        done = subprocess.run(['kcat', '-C', '-q', '-e', '-J', '-o', 'beginning', '-t', topic,
                               '-b', f'127.0.0.1:{self.port}'], check=True, stdout=subprocess.PIPE)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ids(self, topic):
        return [record['headers'][record['headers'].index('ce_id') + 1] for record in self.records(topic)]


@pytest.fixture
def built(postroom):
    if 'kafka' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without kafka')


@pytest.fixture
def kafka(built, tmp_path):
    assert shutil.which('kcat'), 'tools/install test brings it'
    server = Kafka(str(tmp_path))
    server.start()
    yield server
    if server.process.poll() is None:
        server.end()
    server.keeper.kill()
    server.keeper.wait()


def K5_what_is_enqueued_is_in_the_topic(postroom, kafka):
    ids = [postroom.enqueue('orders', '{"n":%d}' % n, '--key', 'k') for n in range(20)]
    postroom.ok('relay', '--to', f'kafka://localhost:{kafka.port}?kafka.linger.ms=1', '--drain')
    assert kafka.ids('orders') == ids
    records = kafka.records('orders')
    assert [record['payload'] for record in records] == ['{"n":%d}' % n for n in range(20)]
    assert {record['key'] for record in records} == {'k'}


def K5_the_library_says_nothing_by_itself(postroom, kafka):
    postroom.enqueue('orders')
    result = postroom.ok('relay', '--to', f'kafka://localhost:{kafka.port}?kafka.debug=all', '--drain')
    assert 'rdkafka' not in result.err and '%7|' not in result.err, result.err


def D5_a_broker_that_dies_and_returns_costs_no_attempt_and_no_message(postroom, kafka):
    relay = postroom.start('relay', '--to', f'kafka://127.0.0.1:{kafka.port}/s-{{topic}}')
    ids = [postroom.enqueue('orders', '{}', '--key', 'k')]
    wait_until(lambda: postroom.show(ids[0])['status'] == 'delivered', 'the first delivery')
    kafka.end()
    ids += [postroom.enqueue('orders', '{}', '--key', 'k') for _ in range(5)]
    while b'OUTBOX_SINK_UNREACHABLE' not in relay.stderr.readline():
        assert relay.poll() is None
    kafka.start()
    wait_until(lambda: {row['status'] for row in postroom.rows()} == {'delivered'}, 'all deliveries')
    assert {row['attempts'] for row in postroom.rows()} == {1}
    assert list(dict.fromkeys(kafka.ids('s-orders'))) == ids
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0


def D4_a_relay_stops_although_its_broker_hangs(postroom, kafka):
    relay = postroom.start('relay', '--to', f'kafka://127.0.0.1:{kafka.port}', '--shutdown-grace', '300ms')
    first = postroom.enqueue('orders')
    wait_until(lambda: postroom.show(first)['status'] == 'delivered', 'the first delivery')
    kafka.process.send_signal(signal.SIGSTOP)
    id = postroom.enqueue('orders')
    wait_until(lambda: postroom.show(id)['status'] == 'processing', 'the claim')
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0
    assert postroom.show(id)['status'] == 'pending'


def G1_properties_may_stand_in_the_file_and_their_secrets_are_not_printed(built, postroom, tmp_path):
    (tmp_path / 'c.yaml').write_text(
        'sinks:\n  bus:\n    url: "kafka://localhost/{topic}"\n    kafka.linger.ms: 20\n'
        '    kafka.sasl.password: hidden-word\nroutes: [ { sink: bus } ]\n')
    result = postroom.ok('relay', '--check', '-c', 'c.yaml')
    assert 'kafka.linger.ms' in result.out and '20' in result.out
    assert 'kafka.sasl.password' in result.out and 'hidden-word' not in result.out + result.err
    (tmp_path / 'c.yaml').write_text('sinks: { bus: { url: "kafka://localhost/x", kafak.linger.ms: 20 } }\n')
    wrong = postroom('relay', '--check', '-c', 'c.yaml')
    assert wrong.code == 2 and 'sinks.bus.kafak.linger.ms: unknown' in wrong.err, wrong
