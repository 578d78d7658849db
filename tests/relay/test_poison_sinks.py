# SPDX-License-Identifier: Apache-2.0
"""A message for which the receiver drops the connection, or that only its own path is missing for. It
must become a dead letter, and neither stop nor fail the others."""
import contextlib
import http.server
import importlib.util
import os
import resource
import socket
import subprocess
import threading

import pytest

from conftest import ROOT, wait_until

# Under a name of its own: tests/servers has the same.
SPEC = importlib.util.spec_from_file_location('bench_servers', ROOT / 'bench' / 'servers.py')
bench_servers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench_servers)
Kafka, Nats, RabbitMQ, Redis = (getattr(bench_servers, name) for name in ('Kafka', 'Nats', 'RabbitMQ', 'Redis'))

OTHERS = 300
POISON = 'poison-message'


class Handler(http.server.BaseHTTPRequestHandler):
    """Drops the connection for the poison message, and answers other paths with their own status."""
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        if POISON.encode() in body:
            self.close_connection = True
            return
        self.send_response({'/missing': 404, '/forbidden': 403}.get(self.path, 204))
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve_http():
    """The URL of a server of the handler above."""
    class Server(http.server.ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 200
    with Server(('127.0.0.1', 0), Handler) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{one.server_port}'
        one.shutdown()


@pytest.fixture
def server():
    with serve_http() as url:
        yield url


class DroppingProxy:
    """Passes everything on, but for the poison message: for that it drops the connection."""

    def __init__(self, to):
        self.to, self.dropped = to, 0
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(('127.0.0.1', self.to))
            threading.Thread(target=self.pump, args=(client, far, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, client, False), daemon=True).start()

    def pump(self, source, target, is_request):
        seen = b''
        try:
            while data := source.recv(65536):
                seen = seen[-len(POISON):] + data
                if is_request and POISON.encode() in seen:
                    self.dropped += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def end(self):
        self.listener.close()


def enqueue(postroom, poison, topic='good'):
    """Some messages, the poisoned ones, and as many again."""
    good = '{"topic":"%s","payload":{"n":1}}\n' % topic
    lines = ''.join('{"topic":"%s","key":%s,"payload":{"text":"%s"}}\n' % one for one in poison)
    postroom.ok('enqueue', '--ndjson', '-', input=good * (OTHERS // 2) + lines + good * (OTHERS // 2))


def drain_with_traffic(postroom, poison, topic, *options):
    """Delivers all, and gives the log. Others keep coming until the poison messages are dead: when nothing is delivered any more,
    they look like an outage."""
    log = os.path.join(postroom.cwd, 'log')
    arguments = ('relay', '--drain', *options)
    with open(log, 'wb') as file:
        relay = postroom.start(*arguments, stdout=file, stderr=file)

    def is_over():
        if relay.poll() is None and postroom.stats()['dead'] < len(poison):
            postroom.enqueue(topic, '{"n":1}')
            return False
        return True
    wait_until(is_over, 'the poison messages to be dead')
    code = relay.wait()
    with open(log, encoding='utf-8') as file:
        text = file.read()
    assert code == 0, text
    postroom.ok(*arguments)  # what came after its end
    return text


def drain(postroom, _poison, _topic, *options):
    """Delivers all, and gives the log."""
    return postroom.ok('relay', '--drain', *options).err


def poison_dies_alone(postroom, to, poison, topic='good', deliver=drain_with_traffic):
    """No other message is charged an attempt, and the breaker never opens."""
    enqueue(postroom, poison, topic)
    log = deliver(postroom, poison, topic, '--to', to, '--workers', '2', '--batch-size', '100',
                  '--max-attempts', '3', '--base-delay', '10ms', '--max-delay', '50ms')
    rows = postroom.rows()
    dead = [row for row in rows if row['status'] == 'dead']
    assert len(dead) == len(poison) and {row['attempts'] for row in dead} == {3}
    others = [(row['status'], row['attempts']) for row in rows if row['status'] != 'dead']
    assert len(others) >= OTHERS and set(others) == {('delivered', 1)}
    assert 'SINK_UNREACHABLE' not in log


def R1_message_whose_http_connection_is_dropped_becomes_a_dead_letter(postroom, server):
    poison_dies_alone(postroom, server + '/{topic}', [('good', 'null', POISON)])


def poisoned_job_dies_alone(postroom, url):
    """The same for the jobs of an inbox, with `consume --http`."""
    lines = [f'{{"id":"e{n}","topic":"t","payload":{{"text":"{POISON if n == 50 else "x"}"}}}}\n' for n in range(100)]
    with open(os.path.join(postroom.cwd, 'log'), 'wb') as log:
        worker = postroom.start('consume', '--handler', 'h', '--from', '-', '--http', url + '/jobs', '--max-attempts', '3',
                                '--base-delay', '10ms', '--max-delay', '50ms', stdin=subprocess.PIPE, stdout=log, stderr=log)
    worker.stdin.write(''.join(lines).encode())
    worker.stdin.flush()
    wait_until(lambda: postroom('stats').code == 0, 'the tables')

    def is_over():
        """Others keep coming, as above."""
        if postroom.stats()['inbox']['dead'] > 0:
            return True
        lines.append(f'{{"id":"e{len(lines)}","topic":"t","payload":{{"text":"x"}}}}\n')
        worker.stdin.write(lines[-1].encode())
        worker.stdin.flush()
        return False
    wait_until(is_over, 'the poison message to be dead')
    worker.stdin.close()
    assert worker.wait() == 0
    jobs = postroom.ok('inbox', 'list', '--json', '--limit', '100000').objects
    assert [(job['id'], job['attempts']) for job in jobs if job['status'] == 'dead'] == [('e50', 3)]
    assert [job['attempts'] for job in jobs if job['status'] == 'completed'] == [1] * (len(lines) - 1)
    with open(log.name, encoding='utf-8') as text:
        assert 'SINK_UNREACHABLE' not in text.read()


def R1_job_whose_http_connection_is_dropped_becomes_a_dead_letter(postroom, server):
    poisoned_job_dies_alone(postroom, server)


@pytest.mark.parametrize('path', ['missing', 'forbidden'])
def R1_messages_whose_own_path_is_refused_become_dead_letters(postroom, server, path):
    poison_dies_alone(postroom, server + '/{topic}', [(path, 'null', 'x')] * 30)


def R1_message_whose_command_is_not_found_becomes_a_dead_letter(postroom):
    poison_dies_alone(postroom, 'exec:test $POSTROOM_TOPIC = good || exit 127', [('bad', 'null', 'x')])


def R2_message_too_long_for_a_command_is_rejected_immediately(postroom):
    """Linux allows a quarter of the stack for arguments and environment; the relay's own leaves some of it."""
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"good","payload":1}\n' * 20 +
                '{"topic":"good","payload":1,"headers":{"name":"%s"}}\n' % ('x' * 65_000))
    own = {f'FILLER_{n}': 'x' * 103_000 for n in range(20)}
    postroom.ok('relay', '--drain', '--to', 'exec:true', env=own, preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1])))
    rows = postroom.rows()
    assert [(row['attempts'], 'too long' in row['last_error']) for row in rows if row['status'] == 'dead'] == [(1, True)]
    assert [row['attempts'] for row in rows if row['status'] == 'delivered'] == [1] * 20


@pytest.fixture(params=[Redis, Nats, RabbitMQ, Kafka], ids=['redis', 'nats', 'amqp', 'kafka'])
def proxied(request, tmp_path, postroom):
    """The URL of a real server, through a proxy that drops the connection of the poison message."""
    if request.param is Kafka and postroom('sinks', 'kafka').code != 0:
        pytest.skip('this build has no Kafka')
    os.chmod(tmp_path, 0o755)
    directory = tmp_path / 'server'
    directory.mkdir()
    build = os.path.dirname(os.environ.get('POSTROOM') or str(ROOT / 'build' / 'postroom'))
    arguments = (build,) if request.param in (RabbitMQ, Kafka) else ()
    far = request.param(str(directory), *arguments)
    far.start()
    proxy = DroppingProxy(far.port)
    if request.param is Kafka:
        far.write('advertised', str(proxy.port))
    yield far.url.replace(str(far.port), str(proxy.port)), proxy
    proxy.end()
    far.end()


def R1_message_that_drops_a_shared_connection_is_dead_lettered_alone(postroom, proxied):
    """The others come in batches: a single one that loses its connection to the poison looks like an outage."""
    to, proxy = proxied
    poison_dies_alone(postroom, to, [('bench.orders', 'null', POISON), ('bench.orders', '"k"', POISON + '2')],
                      topic='bench.orders', deliver=drain)
    assert proxy.dropped >= 6


@pytest.mark.parametrize('last', [False, True], ids=['first', 'last'])
def D6_message_waits_behind_one_of_its_key_that_drops_the_connection(postroom, sql, proxied, last):
    """If they are the last, nothing is delivered after the failure: what was delivered before it counts."""
    to, _ = proxied
    lines = ''.join('{"topic":"bench.orders","key":"k","payload":{"text":"%s"}}\n' % text
                    for text in ('a', POISON, 'b', 'c'))
    others = '{"topic":"bench.orders","payload":1}\n' * 50
    postroom.ok('enqueue', '--ndjson', '-', input=others + lines if last else lines + others)
    options = ('--to', to, '--max-attempts', '3', '--base-delay', '10ms')
    if last:
        postroom.ok('relay', '--drain', *options)
    else:
        drain_with_traffic(postroom, [POISON], 'bench.orders', *options)
    times = sql("SELECT status, delivered_at FROM postroom_outbox WHERE key = 'k' ORDER BY seq")
    assert [status for status, _ in times] == ['delivered', 'dead', 'delivered', 'delivered']
    died = sql("SELECT updated_at FROM postroom_outbox WHERE status = 'dead'")[0][0]
    assert times[0][1] <= died <= times[2][1] <= times[3][1]


def D5_server_that_ends_in_the_middle_of_a_batch_uses_no_attempt(postroom, sql, server):
    """Many messages fail after many were delivered in the same call: that is an outage."""
    # Few enough that a slow machine delivers them, and fails others, in one call, which takes a second.
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"t","payload":1}\n' * 200)
    with open(os.path.join(postroom.cwd, 'log'), 'wb') as log:
        relay = postroom.start('relay', '--workers', '1', '--concurrency', '4', '--max-attempts', '2',
                               '--to', 'exec:test -e down && exit 127; echo >> out; test '
                               '$(wc -l < out) -lt 16 || touch down', stderr=log)
        wait_until(lambda: b'SINK_UNREACHABLE' in open(log.name, 'rb').read(), 'the outage')
        wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'") == [(0,)],
                   'the rest to be released')
        assert sql("SELECT max(attempts) FROM postroom_outbox WHERE status = 'pending'") == [(0,)]
        os.remove(os.path.join(postroom.cwd, 'down'))
        relay.terminate()
        relay.wait()
    assert sql("SELECT count(*) FROM postroom_outbox WHERE status = 'dead'") == [(0,)]
