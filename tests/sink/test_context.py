# SPDX-License-Identifier: Apache-2.0
"""Tenant and correlation id of a message, from enqueue through each broker to each kind of handler."""
import http.server
import subprocess
import threading
import urllib.parse

import pytest

from conftest import wait_until
from servers.test_amqp import rabbitmq, server  # noqa: F401 -- fixtures
from servers.test_kafka import built, kafka  # noqa: F401
from servers.test_nats import begin  # noqa: F401
from servers.test_redis import redis  # noqa: F401

TENANT = '0b9ac2f6-3f0e-4d7e-9a43-5a1f2a6f0c11'
CORRELATION = 'order 7/é, "a" %41'
SOURCES = ['stdin', 'redis', 'kafka', 'nats', 'amqp']


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.server.seen.append((self.headers['ce-id'], self.headers['ce-tenantid'], self.headers['ce-correlationid']))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def web(postroom):
    if 'http' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without http')
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=SOURCES)
def through(request, tmp_path):
    """through(topic): the sink and the source that carry the messages of a topic."""
    def over_stdin(topic):
        return f'file:{tmp_path}/{topic}', '-'

    def over_redis(topic):
        port = request.getfixturevalue('redis').port
        return f'redis://localhost:{port}', f'redis://localhost:{port}/{topic}'

    def over_kafka(topic):
        port = request.getfixturevalue('kafka').port
        return f'kafka://localhost:{port}?kafka.linger.ms=1', f'kafka://localhost:{port}/{topic}'

    def over_nats(topic):
        nats.add_stream(topic.upper(), topic)
        return f'nats://localhost:{nats.port}', f'nats://localhost:{nats.port}/{topic.upper()}'

    def over_amqp(topic):
        broker = request.getfixturevalue('rabbitmq')
        return broker.url, f'{broker.url}//{broker.queue(topic)}'

    nats = request.getfixturevalue('begin')() if request.param == 'nats' else None
    if request.param != 'stdin':
        request.getfixturevalue({'nats': 'begin', 'amqp': 'rabbitmq'}.get(request.param, request.param))
    return {'stdin': over_stdin, 'redis': over_redis, 'kafka': over_kafka, 'nats': over_nats,
            'amqp': over_amqp}[request.param]


def start_consumer(postroom, through, tmp_path, topic, *handler):
    """Sends two messages, one of them with a tenant and a correlation id, to a handler of this name."""
    sink, source = through(topic)
    ids = [postroom.enqueue(topic, '{"n": 1}', '--tenant', TENANT.upper(), '--correlation-id', CORRELATION),
           postroom.enqueue(topic, '{"n": 2}')]
    postroom.ok('relay', '--to', sink, '--drain')
    lines = open(tmp_path / topic, encoding='utf-8') if source == '-' else subprocess.DEVNULL
    consumer = postroom.start('consume', '--handler', topic, '--from', source, *handler, stdin=lines)
    return ids, consumer


def finish(postroom, topic, ids, consumer):
    def rows():
        found = {row['id']: row for row in postroom.ok('inbox', 'list', '--json', '--handler', topic).objects}
        return found if [row['status'] for row in found.values()] == ['completed'] * 2 else None
    found = wait_until(rows, f'{topic} to handle both')
    assert [(found[id]['tenant_id'], found[id]['correlation_id']) for id in ids] == [(TENANT, CORRELATION), (None, None)]
    consumer.terminate()
    assert consumer.wait() == 0


def N2_tenant_and_correlation_id_reach_each_kind_of_handler(postroom, sql, web, through, tmp_path):
    postroom.ok('migrate')
    sql('CREATE TABLE ledger (id TEXT, tenant TEXT, correlation TEXT)')
    command = 'printf "%s\\n" "$POSTROOM_ID|$POSTROOM_TENANT_ID|$POSTROOM_CORRELATION_ID" >> got'
    handlers = {'execs': ['--exec', command],
                'sqls': ['--sql', 'INSERT INTO ledger VALUES (?2, ?6, ?7)'],
                'posts': ['--http', f'http://127.0.0.1:{web.server_port}/']}
    started = {topic: start_consumer(postroom, through, tmp_path, topic, *handler)
               for topic, handler in handlers.items()}
    for topic, (ids, consumer) in started.items():
        finish(postroom, topic, ids, consumer)

    ids = started['execs'][0]
    assert sorted((tmp_path / 'got').read_text().splitlines()) == \
        sorted([f'{ids[0]}|{TENANT}|{CORRELATION}', f'{ids[1]}||'])
    ids = started['sqls'][0]
    assert sorted(sql('SELECT * FROM ledger')) == sorted([(ids[0], TENANT, CORRELATION), (ids[1], None, None)])
    ids = started['posts'][0]
    seen = {id: (tenant, correlation and urllib.parse.unquote(correlation)) for id, tenant, correlation in web.seen}
    assert seen == {ids[0]: (TENANT, CORRELATION), ids[1]: (None, None)}

    shown = {line.split()[0]: line.split(None, 1)[1] for line in postroom.ok('inbox', 'show', ids[0]).lines}
    assert shown['tenant_id'] == TENANT and shown['correlation_id'] == CORRELATION
    assert postroom.ok('inbox', 'show', ids[0], '--json').object['tenant_id'] == TENANT


def J1_submitted_command_carries_tenant_and_correlation_id(postroom, tmp_path):
    postroom.ok('inbox', 'submit', 'h', 'c-1', '--tenant', TENANT.upper(), '--correlation-id', CORRELATION)
    row = postroom.ok('inbox', 'list', '--json').object
    assert (row['tenant_id'], row['correlation_id']) == (TENANT, CORRELATION)
    postroom.ok('consume', '--handler', 'h', '--drain', '--exec',
                'printf "%s" "$POSTROOM_TENANT_ID|$POSTROOM_CORRELATION_ID" > got')
    assert (tmp_path / 'got').read_text() == f'{TENANT}|{CORRELATION}'
    assert 'tenant_id is not a UUID' in postroom.fails(1, 'inbox', 'submit', 'h', 'c-2', '--tenant', 'acme')
    assert 'correlation_id' in postroom.fails(1, 'inbox', 'submit', 'h', 'c-2', '--correlation-id', 'a\nb')
    assert '--tenant' in postroom.fails(2, 'inbox', 'list', '--tenant', TENANT)
