# SPDX-License-Identifier: Apache-2.0
"""postroom doctor and its sinks: unreachable, refused, without a target, or not durable. Nothing is published."""
import os
import subprocess

import pytest

from doctor.examining import is_quiet, only
from servers.launch import free_port
from servers.test_amqp import rabbitmq, server  # noqa: F401  fixtures
from servers.test_kafka import built, kafka  # noqa: F401
from servers.test_nats import begin  # noqa: F401
from servers.test_redis import redis  # noqa: F401


@pytest.fixture
def probe(postroom):
    """probe(URL, 'warning') expects one finding of the sink; probe(URL) none."""
    postroom.ok('migrate')

    def run(url, level=None):
        if level is None:
            return is_quiet(postroom, '--to', url)
        return only(postroom, 'sink:to', level, '--to', url)
    return run


@pytest.mark.parametrize('scheme', ['http', 'https', 'redis', 'nats', 'amqp', 'kafka'])
def U2_unreachable_sink_is_a_problem(postroom, probe, scheme):
    if scheme not in [word for line in postroom.ok('sinks', '--json').objects for word in line['schemes']]:
        pytest.skip(f'built without {scheme}')
    found = probe(f'{scheme}://127.0.0.1:{free_port()}/x', 'problem')
    assert 'wait in the outbox' in found['detail']


def U2_sinks_of_this_host_are_quiet(probe, tmp_path):
    for url in ('null:', 'stdout:', f'file:{tmp_path}/out', 'exec:cat >/dev/null', 'exec:/bin/cat'):
        probe(url)
    assert not os.path.exists(tmp_path / 'out')


def U2_file_that_cannot_be_written_is_a_problem(probe, tmp_path):
    found = probe(f'file:{tmp_path}/missing/out', 'problem')
    subprocess.run(found['command'], shell=True, check=True)
    probe(f'file:{tmp_path}/missing/out')


def U2_program_that_cannot_be_run_is_a_problem(probe, tmp_path):
    (tmp_path / 'deliver').write_text('#!/bin/sh\n')
    found = probe(f'exec:{tmp_path}/deliver now', 'problem')
    subprocess.run(found['command'], shell=True, check=True)
    probe(f'exec:{tmp_path}/deliver now')


def U2_wrong_setting_is_a_problem(postroom):
    assert 'sync' in only(postroom, 'configuration', 'problem', '--to', 'file:out?sinc=true')['title']


def U2_redis_without_append_only_file_is_a_warning(probe, redis):  # noqa: F811
    url = f'redis://127.0.0.1:{redis.port}/orders'
    probe(url)
    redis.ask('CONFIG', 'SET', 'appendonly', 'no')
    found = probe(url, 'warning')
    subprocess.run(found['command'], shell=True, check=True, stdout=subprocess.DEVNULL)
    probe(url)
    assert redis.ask('EXISTS', 'orders') == 0


def U2_redis_that_evicts_streams_is_a_warning(probe, redis):  # noqa: F811
    redis.ask('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
    found = probe(f'redis://127.0.0.1:{redis.port}/orders', 'warning')
    subprocess.run(found['command'], shell=True, check=True, stdout=subprocess.DEVNULL)
    probe(f'redis://127.0.0.1:{redis.port}/orders')


def U2_redis_key_that_is_no_stream_is_a_problem(probe, redis):  # noqa: F811
    redis.ask('SET', 'orders', 'x')
    probe(f'redis://127.0.0.1:{redis.port}/orders', 'problem')
    redis.ask('DEL', 'orders')
    probe(f'redis://127.0.0.1:{redis.port}/orders')


def U2_redis_wrong_password_is_a_problem_without_the_password(probe, redis):  # noqa: F811
    redis.ask('CONFIG', 'SET', 'requirepass', 'right')
    found = probe(f'redis://:wrong-one@127.0.0.1:{redis.port}/orders', 'problem')
    assert 'AUTH' in found['detail'] and 'wrong-one' not in str(found)
    probe(f'redis://:right@127.0.0.1:{redis.port}/orders')


def U2_nats_stream_in_memory_is_a_warning(probe, begin):  # noqa: F811
    nats = begin()
    url = f'nats://127.0.0.1:{nats.port}/orders'
    assert 'orders' in probe(url, 'problem')['title']
    nats.ask('$JS.API.STREAM.CREATE.O', name='O', subjects=['orders'], storage='memory')
    probe(url, 'warning')
    nats.ask('$JS.API.STREAM.DELETE.O')
    nats.add_stream('O', 'orders')
    probe(url)
    assert nats.ids('O') == []


def U2_nats_wrong_password_is_a_problem(probe, begin):  # noqa: F811
    nats = begin('authorization { user: a, password: right }\n',
                 login=lambda info: {'user': 'a', 'pass': 'right'})
    nats.add_stream('O', 'orders')
    found = probe(f'nats://a:wrong-one@127.0.0.1:{nats.port}/orders', 'problem')
    assert 'wrong-one' not in str(found)
    probe(f'nats://a:right@127.0.0.1:{nats.port}/orders')


def U2_amqp_missing_exchange_is_a_problem(probe, rabbitmq):  # noqa: F811
    assert 'does not exist' in probe(f'{rabbitmq.url}/%2F/none', 'problem')['title']
    probe(f'{rabbitmq.url}/%2F/amq.topic')


def U2_amqp_queue_that_is_not_durable_is_a_warning(probe, rabbitmq):  # noqa: F811
    url = f'{rabbitmq.url}/%2F/?routing_key=weak'
    assert 'does not exist' in probe(url, 'problem')['title']
    rabbitmq.tool('declare-queue', '--queue', 'weak')
    probe(url, 'warning')
    queue = rabbitmq.queue('weak')
    probe(url)
    assert rabbitmq.bodies(queue) == []


def U2_amqp_wrong_password_is_a_problem(probe, rabbitmq):  # noqa: F811
    url = rabbitmq.url.replace('guest:guest', 'guest:wrong-one')
    found = probe(f'{url}/%2F/amq.topic', 'problem')
    assert 'wrong-one' not in str(found)


def U2_kafka_topic_that_does_not_exist_is_a_warning(probe, kafka):  # noqa: F811
    probe(f'kafka://127.0.0.1:{kafka.port}/{{topic}}')
    assert 'does not exist' in probe(f'kafka://127.0.0.1:{kafka.port}/orders', 'warning')['title']
    assert '"orders"' not in subprocess.run(['kcat', '-L', '-b', f'127.0.0.1:{kafka.port}'], check=True,
                                            stdout=subprocess.PIPE, text=True).stdout


def U2_kafka_topic_with_one_replica_is_a_warning(postroom, probe, kafka):  # noqa: F811
    postroom.enqueue('orders')
    postroom.ok('relay', '--to', f'kafka://127.0.0.1:{kafka.port}/orders', '--drain')
    assert 'one replica' in probe(f'kafka://127.0.0.1:{kafka.port}/orders', 'warning')['title']
