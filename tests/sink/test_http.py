# SPDX-License-Identifier: Apache-2.0
"""http: and https: as a receiver sees them: read by libraries that are not ours, behind nginx,
with TLS, and by a relay that runs."""
import base64
import hmac
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import threading
from datetime import datetime, timedelta
from urllib.parse import unquote, urlsplit

import pytest

from conftest import PROGRAM, ROOT, wait_until
from servers.launch import free_port

SECRETS = ['whsec_' + base64.b64encode(bytes([n]) * 24).decode() for n in (1, 2, 3)]


class Receiver:
    """A web server that keeps what it gets, and answers with the statuses that it is given."""

    def __init__(self):
        self.requests, self.answers = [], []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append({'path': self.path, 'headers': headers, 'body': body})
                status, extra = receiver.answers.pop(0) if receiver.answers else (200, {})
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header('Content-Length', '4')
                self.end_headers()
                self.wfile.write(b'seen')

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def drain(postroom, url, *args):
    return postroom('relay', '--drain', '--workers', '1', '--to', url, *args)


@pytest.fixture(scope='session')
def oracles():
    """Asks the libraries of oracles.mjs, which npm brings into the build directory once."""
    if not shutil.which('npm') or not shutil.which('node'):
        pytest.skip('npm is missing')
    home = pathlib.Path(PROGRAM).resolve().parent / 'oracles'
    if not (home / 'node_modules' / 'standardwebhooks').exists():
        brought = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=1',
                                  '--prefix', home, 'cloudevents@10', 'standardwebhooks@1'],
                                 timeout=300, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, check=False)
        if brought.returncode != 0:
            pytest.skip('npm brings nothing here: ' + brought.stderr[:300])

    def ask(requests, secrets=()):
        asked = [{'headers': request['headers'], 'secrets': secrets,
                  'body': base64.b64encode(request['body']).decode()} for request in requests]
        done = subprocess.run(['node', ROOT / 'tests' / 'sink' / 'oracles.mjs', home], check=True,
                              input=json.dumps(asked).encode(), stdout=subprocess.PIPE, timeout=300)
        return json.loads(done.stdout)
    return ask


def enqueue_a_variety(postroom, tmp_path):
    """One of each kind; what the receiver must make of them, by id."""
    expected = {}

    def add(topic, payload, *args, binary=None, **attributes):
        id = postroom.enqueue(topic, payload, *args)
        expected[id] = {'type': topic, 'source': '/postroom/default', 'specversion': '1.0',
                        'datacontenttype': 'application/json', **attributes}, payload, binary

    add('orders.created', '{"total": 12.50, "who": "J\\u00f6rg"}', '--key', 'o-1', subject='o-1')
    add('commandes.créées/été 100%', '{"où": "là", "n": [1, null, "\\""]}', '--key', 'ключ "1"',
        '--correlation-id', 'c-é', subject='ключ "1"', correlationid='c-é')
    add('with.tenant', '"text"', '--tenant', '0190a3b0-0000-7000-8000-000000000001',
        tenantid='0190a3b0-0000-7000-8000-000000000001')
    for size in (1, 256, 100000):
        body = bytes(n * 7 % 256 for n in range(size))
        (tmp_path / f'body-{size}').write_bytes(body)
        id = postroom.ok('enqueue', 'binary', '--json', '--body-file', tmp_path / f'body-{size}',
                         '--content-type', 'image/png').object['id']
        expected[id] = {'type': 'binary', 'source': '/postroom/default', 'specversion': '1.0',
                        'datacontenttype': 'image/png'}, None, body
    return expected


def signature(secret, request):
    headers = request['headers']
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request['body']
    key = base64.b64decode(secret.removeprefix('whsec_'))
    return 'v1,' + base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()


@pytest.mark.parametrize('mode', ['binary', 'structured'])
def K4_third_party_libraries_read_and_verify_requests(postroom, receiver, oracles,
                                                               tmp_path, mode):
    expected = enqueue_a_variety(postroom, tmp_path)
    result = drain(postroom, f'{receiver.url}/hook?mode={mode}&secret={SECRETS[0]},{SECRETS[1]}')
    assert result.code == 0, result
    assert len(receiver.requests) == len(expected)
    for request, read in zip(receiver.requests, oracles(receiver.requests, SECRETS)):
        attributes, payload, binary = expected.pop(read['attributes']['id'])
        if mode == 'binary' and binary is not None:  # the other library takes text only
            assert request['headers']['webhook-signature'] == ' '.join(
                signature(secret, request) for secret in SECRETS[:2])
        else:
            assert read['signed'] == [True, True, False]
        assert request['headers']['webhook-id'] == read['attributes'].pop('id')
        assert read['attributes'].pop('time').startswith('20')
        if mode == 'binary':  # this library leaves the decoding of headers to its callers
            read['attributes'] = {name: unquote(value) if name != 'source' else value
                                  for name, value in read['attributes'].items()}
        assert read['attributes'] == attributes
        if binary is None:
            assert read['data'] == json.loads(payload)
        else:
            assert base64.b64decode(read['binary']) == binary
        assert (request['headers']['content-type'] == 'application/cloudevents+json') == \
            (mode == 'structured')
        if mode == 'binary':
            assert request['body'] == (payload.encode() if binary is None else binary)
    assert not expected


def K4_changed_request_fails_verification(postroom, receiver, oracles):
    postroom.enqueue('orders.created', '{"total": 1}')
    drain(postroom, f'{receiver.url}/?secret={SECRETS[0]}')
    request, = receiver.requests
    forged = dict(request, body=b'{"total": 9}')
    moved = dict(request, headers=dict(request['headers'], **{'webhook-timestamp': '1700000000'}))
    assert [read['signed'] for read in oracles([request, forged, moved], SECRETS[:1])] == \
        [[True], [False], [False]]


def K4_idempotency_key_is_dedupe_key_or_else_id(postroom, receiver):
    postroom.enqueue('a', '1', '--dedupe-key', 'order-7/paid')
    id = postroom.enqueue('a', '2')
    drain(postroom, receiver.url)
    assert sorted(r['headers']['idempotency-key'] for r in receiver.requests) == \
        sorted(['order-7/paid', id])


def K4_trace_context_and_own_headers_are_passed_on(postroom, receiver):
    trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    postroom.enqueue('a', '1', '--header', f'traceparent={trace}', '--header', 'tracestate=k=v',
                     '--header', 'X-Mine=yes')
    drain(postroom, receiver.url)
    headers = receiver.requests[0]['headers']
    assert (headers['traceparent'], headers['tracestate'], headers['x-mine']) == (trace, 'k=v', 'yes')


def R3_message_is_retried_at_the_time_set_by_the_server(postroom, receiver):
    receiver.answers = [(429, {'Retry-After': '3000'})]
    id = postroom.enqueue('a', '1')
    relay = postroom.start('relay', '--to', receiver.url)
    wait_until(lambda: postroom.show(id)['last_error'], 'the failure')
    relay.terminate()
    assert relay.wait() == 0
    row = postroom.show(id)
    assert (row['status'], row['attempts'], row['last_error']) == ('pending', 1, 'HTTP 429: seen')
    wait = datetime.fromisoformat(row['next_attempt_at'].rstrip('Z')) - \
        datetime.fromisoformat(row['last_attempt_at'].rstrip('Z'))
    assert wait >= timedelta(seconds=3000)  # the backoff alone would have been a second


def K4_rejection_is_permanent_and_missing_page_is_an_outage(postroom, receiver):
    receiver.answers = [(422, {})]
    id = postroom.enqueue('a', '1')
    assert drain(postroom, receiver.url).code == 0
    assert postroom.show(id)['status'] == 'dead'
    assert postroom.show(id)['last_error'] == 'HTTP 422: seen'
    receiver.answers = [(404, {})]
    id = postroom.enqueue('a', '2')
    assert drain(postroom, receiver.url).code == 0
    row = postroom.show(id)
    assert (row['status'], row['attempts']) == ('delivered', 1)


def G1_no_secret_of_the_url_is_logged(postroom):
    postroom.enqueue('a', '1')
    port = free_port()
    url = (f'http://me:hush-password@127.0.0.1:{port}/?secret=whsec_aHVzaA==,whsec_aHVzaHNlY3JldA=='
           '&header=Authorization:%20Bearer%20hush-token')
    relay = postroom.start('relay', '--to', url, '--log-level', 'debug')
    lines = []
    for line in relay.stderr:
        lines.append(line)
        if b'127.0.0.1' in line:
            break
    relay.terminate()
    rest = relay.stderr.read()
    relay.wait()
    said = b''.join(lines) + rest
    assert b'hush' not in said and b'aHVza' not in said, said


@pytest.fixture
def nginx(tmp_path):
    """nginx with TLS and HTTP/2 for localhost, its certificates from a CA of the test."""
    program = shutil.which('nginx') or '/usr/sbin/nginx'
    if not os.path.exists(program):
        pytest.skip('nginx is missing; tools/install test')
    home = tmp_path / 'nginx'
    home.mkdir()

    def openssl(*args):
        subprocess.run(['openssl', *args], cwd=home, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
            '-subj', '/CN=test CA', '-days', '2', '-keyout', 'ca.key', '-out', 'ca.pem')
    for name, subject in (('server', '/CN=localhost'), ('client', '/CN=postroom')):
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj',
                subject, '-addext', 'subjectAltName=DNS:localhost', '-keyout', f'{name}.key',
                '-out', f'{name}.csr')
        openssl('x509', '-req', '-in', f'{name}.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key',
                '-CAcreateserial', '-days', '2', '-copy_extensions', 'copy', '-out', f'{name}.pem')
    openssl('ec', '-in', 'client.key', '-aes256', '-passout', 'pass:hush', '-out', 'client.locked')
    port = free_port()
    (home / 'nginx.conf').write_text(f'''
        daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;
        events {{ worker_connections 200; }}
        http {{
            log_format seen '$server_protocol $http_ce_id $ssl_client_verify $connection';
            access_log {home}/access.log seen;
            client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
            fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
            server {{
                listen 127.0.0.1:{port} ssl http2; server_name localhost;
                ssl_certificate {home}/server.pem; ssl_certificate_key {home}/server.key;
                ssl_client_certificate {home}/ca.pem; ssl_verify_client optional;
                location / {{ return 204; }}
                location /members {{ if ($ssl_client_verify != SUCCESS) {{ return 403; }} return 204; }}
            }}
        }}''')
    process = subprocess.Popen([program, '-p', home, '-c', home / 'nginx.conf'],
                               stderr=subprocess.DEVNULL)
    nginx.home, nginx.url = home, f'https://localhost:{port}'

    def answers():
        assert process.poll() is None, (home / 'error.log').read_text()
        with socket.socket() as probe:
            return probe.connect_ex(('127.0.0.1', port)) == 0
    wait_until(answers, 'nginx')
    yield nginx
    process.kill()
    process.wait()


def access_log(nginx, count):
    def lines():
        found = (nginx.home / 'access.log').read_text().splitlines()
        return found if len(found) >= count else None
    return [line.split() for line in wait_until(lines, 'the access log')]


def K4_https_uses_one_http2_connection(postroom, nginx):
    ids = [postroom.enqueue('a', str(n)) for n in range(20)]
    result = drain(postroom, f'{nginx.url}/?ca={nginx.home}/ca.pem')
    assert result.code == 0, result
    seen = access_log(nginx, 20)
    assert sorted(line[1] for line in seen) == sorted(ids)
    assert {line[0] for line in seen} == {'HTTP/2.0'}
    assert len({line[3] for line in seen}) == 1


def waits_with(postroom, url):
    """The relay's log while it cannot deliver; no request must have been received."""
    relay = postroom.start('relay', '--to', url)
    said = b''
    while b'OUTBOX_SINK' not in said and b'reason=' not in said and b'error=' not in said:
        line = relay.stderr.readline()
        assert line, said
        said += line
    relay.terminate()
    said += relay.stderr.read()
    relay.wait()
    assert postroom.stats()['delivered'] == 0
    return said.decode()


def K4_a_certificate_of_an_unknown_authority_is_not_trusted(postroom, nginx):
    postroom.enqueue('a', '1')
    assert 'SSL certificate problem' in waits_with(postroom, nginx.url)
    assert (nginx.home / 'access.log').read_text() == ''


def K4_a_certificate_of_another_host_is_not_trusted(postroom, nginx):
    postroom.enqueue('a', '1')
    url = nginx.url.replace('localhost', '127.0.0.1')
    assert 'SSL' in waits_with(postroom, f'{url}/?ca={nginx.home}/ca.pem')
    assert (nginx.home / 'access.log').read_text() == ''


@pytest.mark.parametrize('key', ['key={home}/client.key', 'key={home}/client.locked&key_password=hush'])
def K4_client_certificate_is_sent(postroom, nginx, key):
    postroom.enqueue('a', '1')
    settings = f'ca={nginx.home}/ca.pem&cert={nginx.home}/client.pem&{key.format(home=nginx.home)}'
    result = drain(postroom, f'{nginx.url}/members?{settings}')
    assert result.code == 0, result
    assert access_log(nginx, 1)[0][2] == 'SUCCESS'


def K4_missing_client_certificate_is_an_outage(postroom, nginx):
    postroom.enqueue('a', '1')
    assert 'HTTP 403' in waits_with(postroom, f'{nginx.url}/members?ca={nginx.home}/ca.pem')


@pytest.mark.parametrize('key,says', [('client.locked', 'key_password='), ('server.key', 'does not match'),
                                      ('client.pem', 'no key')])
def K4_unusable_key_is_refused_at_start_without_a_prompt(postroom, nginx, key, says):
    postroom.enqueue('a', '1')
    settings = f'ca={nginx.home}/ca.pem&cert={nginx.home}/client.pem&key={nginx.home}/{key}'
    result = drain(postroom, f'{nginx.url}/members?{settings}')
    assert result.code != 0 and f'{nginx.home}/{key}' in result.err and says in result.err, result


class Wire:
    """Passes bytes to a server, until cut(): what is connected then hangs, and new ones pass."""

    def __init__(self, url):
        self.to = urlsplit(url).port
        self.taken, self.swallowing = [], set()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = f'https://localhost:{self.listener.getsockname()[1]}'
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(('127.0.0.1', self.to))
            self.taken.append(client)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=(client, *ends), daemon=True).start()

    def carry(self, client, source, target):
        try:
            while data := source.recv(65536):
                if client not in self.swallowing:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        self.swallowing.update(self.taken)


@pytest.fixture
def wire(nginx):
    wire = Wire(nginx.url)
    yield wire
    wire.listener.close()


def D5_silent_http2_connection_is_replaced(postroom, nginx, wire):
    first = postroom.enqueue('a', '1')
    relay = postroom.start('relay', '--to', f'{wire.url}/?ca={nginx.home}/ca.pem', '--workers', '1',
                           '--publish-timeout', '1s')
    wait_until(lambda: postroom.show(first)['status'] == 'delivered', 'the first message')
    wire.cut()
    second = postroom.enqueue('a', '2')
    wait_until(lambda: postroom.show(second)['status'] == 'delivered', 'the second message')
    assert {line[0] for line in access_log(nginx, 2)} == {'HTTP/2.0'}
    relay.terminate()
    assert relay.wait() == 0


@pytest.fixture
def http2(nginx):
    """A server that ends the stream of every request for the topic "bad", and with the first for
    the topic "last" the connection; it takes the others."""
    program = '''
        const fs = require('fs'), home = process.argv[1];
        const keys = { key: fs.readFileSync(home + '/server.key'), cert: fs.readFileSync(home + '/server.pem') };
        const server = require('http2').createSecureServer(keys);
        let ended = false;
        server.on('stream', (stream, headers) => {
            stream.on('error', () => {});
            if (headers['ce-type'] === 'bad') { stream.close(11); return; }
            if (headers['ce-type'] === 'last' && !ended) {
                ended = true;
                setTimeout(() => stream.session.destroy(), 50);
                return;
            }
            stream.respond({ ':status': 204 }, { endStream: true });
        });
        server.listen(0, '127.0.0.1', () => console.log(server.address().port));
    '''
    if not shutil.which('node'):
        pytest.skip('node is missing')
    with subprocess.Popen(['node', '-e', program, nginx.home], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        yield f'https://localhost:{int(process.stdout.readline())}/?ca={nginx.home}/ca.pem'
        process.kill()


def K4_reset_stream_fails_only_its_message(postroom, http2):
    bad = postroom.enqueue('bad', '1')
    good = [postroom.enqueue('good', str(n)) for n in range(5)]
    result = drain(postroom, http2, '--max-attempts', '1')
    assert [postroom.show(id)['status'] for id in good] == ['delivered'] * 5, result
    row = postroom.show(bad)
    assert (row['status'], row['attempts']) == ('dead', 1), result
    assert 'ENHANCE_YOUR_CALM' in row['last_error']


def R1_http2_connection_that_ends_for_one_message_uses_one_attempt(postroom, http2):
    """Others of the same call were answered, so the sink is not down."""
    ids = [postroom.enqueue('good', '1'), postroom.enqueue('last', '2')]
    result = drain(postroom, http2, '--max-attempts', '2', '--base-delay', '10ms')
    rows = [postroom.show(id) for id in ids]
    assert [row['status'] for row in rows] == ['delivered'] * 2, result
    assert [row['attempts'] for row in rows] == [1, 2], result
    assert 'SINK_UNREACHABLE' not in str(result), result


def K4_the_receiver_of_the_manual_works(postroom, tmp_path):
    manual = (ROOT / 'docs' / 'sinks' / 'http.md').read_text()
    port = str(free_port())
    program = re.search('```python\n(.*?)```', manual, re.DOTALL)[1].replace('8080', port)
    (tmp_path / 'receiver.py').write_text(program)
    commands = re.findall(r'^    postroom (enqueue .*|relay --drain .*)$', manual, re.MULTILINE)
    assert len(commands) == 2
    with subprocess.Popen(['/usr/bin/python3', 'receiver.py'], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as receiver:
        for command in commands:
            result = postroom(*shlex.split(command.replace('8080', port)))
            assert result.code == 0, result
        line = receiver.stdout.readline().decode()
        receiver.kill()
    assert re.fullmatch(r'orders\.created [-0-9a-f]{36} {"total": 12}\n', line)


def K4_every_setting_is_in_the_manual(postroom):
    manual = (ROOT / 'docs' / 'sinks' / 'http.md').read_text()
    params = postroom.ok('sinks', 'http', '--json').object['params']
    assert len(params) > 10
    for param in params:
        assert f"`{param['name']}`" in manual, param
