# SPDX-License-Identifier: Apache-2.0
"""postroom doctor and its sinks: unreachable, refused, without a target, or not durable. Nothing is published."""
import http.server
import os
import ssl
import subprocess
import threading

import pytest

from doctor.examining import is_quiet, only
from doctor.kafka_cluster import NOT_AUTHORIZED, kafka_cluster
from servers.launch import RABBITMQ, free_port
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


def U2_https_certificate_that_is_not_trusted_is_a_problem(probe, tmp_path):
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=localhost', '-addext',
                    'subjectAltName=DNS:localhost', '-keyout', tmp_path / 'key.pem', '-out', tmp_path / 'cert.pem'],
                   check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / 'cert.pem', tmp_path / 'key.pem')
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.path)

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f'https://localhost:{server.server_address[1]}/x'
        assert 'certificate' in probe(url, 'problem')['detail']
        probe(f'{url}?ca={tmp_path}/cert.pem')
        assert requests == []
    finally:
        server.shutdown()
        server.server_close()


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


def U2_redis_replica_is_a_problem(probe, redis):  # noqa: F811
    redis.ask('REPLICAOF', '127.0.0.1', str(free_port()))
    assert 'is a replica' in probe(f'redis://127.0.0.1:{redis.port}/orders', 'problem')['title']
    redis.ask('REPLICAOF', 'NO', 'ONE')
    probe(f'redis://127.0.0.1:{redis.port}/orders')


def U2_redis_user_without_info_skips_the_check(probe, redis):  # noqa: F811
    redis.ask('ACL', 'SETUSER', 'plain', 'on', '>secret', '~*', '+@all', '-info')
    found = probe(f'redis://plain:secret@127.0.0.1:{redis.port}/orders', 'skipped')
    assert 'INFO' in found['advice'] and 'secret' not in str(found)
    redis.ask('ACL', 'SETUSER', 'plain', '+info')
    probe(f'redis://plain:secret@127.0.0.1:{redis.port}/orders')


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


def U2_nats_stream_without_acknowledgements_is_a_problem(probe, begin):  # noqa: F811
    nats = begin()
    nats.add_stream('O', 'orders', no_ack=True)
    assert 'acknowledges nothing' in probe(f'nats://127.0.0.1:{nats.port}/orders', 'problem')['title']
    nats.ask('$JS.API.STREAM.UPDATE.O', name='O', subjects=['orders'], storage='file', no_ack=False)
    probe(f'nats://127.0.0.1:{nats.port}/orders')


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


def U2_amqp_exchange_that_is_not_durable_is_a_warning(probe, rabbitmq):  # noqa: F811
    def evaluate(words):
        subprocess.run([os.path.join(os.path.dirname(RABBITMQ), 'rabbitmqctl'), 'eval', words], env=rabbitmq.environment,
                       check=True, stdout=subprocess.DEVNULL)

    def declare(durable):
        evaluate(f'rabbit_exchange:declare({name}, fanout, {durable}, false, false, [], <<"guest">>).')
    name = '{resource, <<"/">>, exchange, <<"weak">>}'
    declare('false')
    assert 'is not durable' in probe(f'{rabbitmq.url}/%2F/weak', 'warning')['title']
    evaluate(f'rabbit_exchange:delete({name}, false, <<"guest">>).')
    declare('true')
    probe(f'{rabbitmq.url}/%2F/weak')


def U2_amqp_wrong_password_is_a_problem(probe, rabbitmq):  # noqa: F811
    url = rabbitmq.url.replace('guest:guest', 'guest:wrong-one')
    found = probe(f'{url}/%2F/amq.topic', 'problem')
    assert 'wrong-one' not in str(found)


def U2_kafka_topic_that_does_not_exist_is_a_warning(probe, kafka):  # noqa: F811
    probe(f'kafka://127.0.0.1:{kafka.port}/{{topic}}')
    assert 'does not exist' in probe(f'kafka://127.0.0.1:{kafka.port}/orders', 'warning')['title']
    assert '"orders"' not in subprocess.run(['kcat', '-L', '-b', f'127.0.0.1:{kafka.port}'], check=True,
                                            stdout=subprocess.PIPE, text=True).stdout


def U2_kafka_topic_that_one_broker_acknowledges_is_a_warning(probe, built):  # noqa: F811
    with kafka_cluster() as cluster:
        url = f'kafka://127.0.0.1:{cluster.server_address[1]}/orders'
        probe(url)
        cluster.replicas = 1
        assert 'min.insync.replicas=1' in probe(url, 'warning')['title']
        cluster.replicas = None
        assert 'DescribeConfigs' in probe(url, 'skipped')['advice']


def U2_kafka_wrong_password_is_a_problem_without_the_password(probe, built):  # noqa: F811
    with kafka_cluster() as cluster:
        url = (f'kafka://127.0.0.1:{cluster.server_address[1]}/orders?kafka.security.protocol=sasl_plaintext&kafka.sasl.mechanism=PLAIN'
               '&kafka.sasl.username=app&kafka.sasl.password=')
        found = probe(url + 'wrong-one', 'problem')
        assert 'refused' in found['detail'] and 'wrong-one' not in str(found), found
        probe(url + 'right')


def U2_kafka_topic_that_cannot_be_used_is_a_problem(probe, built):  # noqa: F811
    with kafka_cluster() as cluster:
        cluster.error = NOT_AUTHORIZED
        assert 'cannot be used' in probe(f'kafka://127.0.0.1:{cluster.server_address[1]}/orders', 'problem')['title']


def U2_kafka_topic_with_one_replica_is_a_warning(postroom, probe, kafka):  # noqa: F811
    postroom.enqueue('orders')
    postroom.ok('relay', '--to', f'kafka://127.0.0.1:{kafka.port}/orders', '--drain')
    assert 'one replica' in probe(f'kafka://127.0.0.1:{kafka.port}/orders', 'warning')['title']
