# SPDX-License-Identifier: Apache-2.0
"""http: with hostile events and hostile receivers: injection, redirects, secrets in the URL."""
import base64
import hmac
import http.server
import json
import pathlib
import threading

import pytest

from conftest import wait_until
from servers.launch import free_port

SECRET = 'whsec_' + base64.b64encode(b'k' * 24).decode()
QUICK = ('--base-delay', '10ms', '--max-delay', '20ms', '--poll-interval', '10ms')


class Receiver:
    """A web server that keeps every request, of whatever method, with all of its header lines."""

    def __init__(self):
        self.requests, self.location = [], None
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def take(self):
                body = self.rfile.read(int(self.headers['Content-Length'] or 0))
                receiver.requests.append((self.command, self.path, self.headers.items(), body))
                self.send_response(307 if receiver.location else 200)
                if receiver.location:
                    self.send_header('Location', receiver.location)
                self.send_header('Content-Length', '0')
                self.end_headers()

            do_GET = do_POST = do_PUT = do_DELETE = take

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def headers(self, index=0):
        return {name.lower(): value for name, value in self.requests[index][2]}


@pytest.fixture
def receivers():
    both = [Receiver(), Receiver()]
    yield both
    for receiver in both:
        receiver.server.shutdown()
        receiver.server.server_close()


def consume(postroom, url, *events):
    return postroom.ok('consume', '--handler', 'h', '--from', '-', *QUICK, '--http', url,
                       input=''.join(json.dumps(event) + '\n' for event in events))


def signature(headers, body):
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return 'v1,' + base64.b64encode(hmac.digest(b'k' * 24, signed, 'sha256')).decode()


def K4_event_id_with_line_breaks_cannot_add_a_request(postroom, receivers):
    evil = 'e1\r\nX-Evil: yes\r\nContent-Length: 0\r\n\r\nDELETE /evil HTTP/1.1\r\nHost: evil\r\n\r\n'
    consume(postroom, f'{receivers[0].url}/hook?secret={SECRET}&header=Authorization:%20Bearer%20x',
            {'id': evil, 'topic': 't', 'payload': {'n': 1}},
            {'id': 'plain', 'topic': 't\r\nX-Evil: yes', 'key': 'k\nX-Evil: yes', 'payload': {'n': 2}},
            {'id': 'last', 'topic': 't', 'payload': {'n': 3}})
    seen = receivers[0].requests
    assert {(method, path) for method, path, _, _ in seen} == {('POST', '/hook')}
    assert len({body for _, _, _, body in seen}) == len(seen) and b'{"n":3}' in {
        body.replace(b' ', b'') for _, _, _, body in seen}
    for index, (_, _, lines, body) in enumerate(seen):
        headers = receivers[0].headers(index)
        assert len(headers) == len(lines) and 'x-evil' not in headers
        assert headers['webhook-signature'] == signature(headers, body)
    rows = postroom.ok('inbox', 'list', '--json').objects
    delivered = [row for row in rows if row['status'] == 'completed']
    assert len(delivered) == len(seen), 'each event arrived, or is dead with a reason'


@pytest.mark.parametrize('length', [115, 116, 1024])
def K4_signed_event_id_may_have_1024_bytes(postroom, receivers, length):
    consume(postroom, f'{receivers[0].url}/?secret={SECRET}',
            {'id': 'i' * length, 'topic': 't', 'payload': {}})
    headers = receivers[0].headers()
    assert headers['webhook-id'] == 'i' * length
    assert headers['webhook-signature'] == signature(headers, receivers[0].requests[0][3])


HIDDEN = 'header=X-Token:%20hush&header=Authorization:%20Bearer%20hush'


def K4_redirect_to_another_origin_sends_no_secret_header(postroom, receivers):
    first, second = receivers
    first.location = f'{second.url}/new'
    postroom.enqueue('orders', '{"n": 1}', '--header', 'X-Own=hush')
    url = first.url.replace('//', '//me:hush@')
    assert postroom('relay', '--drain', '--to', f'{url}/old?follow=2&secret={SECRET}&'
                    'header=X-Token:%20hush&header=Cookie:%20hush').code == 0
    assert [len(one.requests) for one in receivers] == [1, 1]
    assert first.headers()['x-token'] == 'hush' and 'authorization' in first.headers()
    headers, body = second.headers(), second.requests[0][3]
    assert body == b'{"n": 1}' and headers['webhook-signature'] == signature(headers, body)
    allowed = {'host', 'user-agent', 'accept', 'content-length', 'content-type', 'idempotency-key'}
    assert not {name for name in headers if name not in allowed and
                not name.startswith(('ce-', 'webhook-'))}, headers
    assert 'hush' not in str(second.requests)


def K4_redirect_within_the_origin_keeps_the_headers(postroom, receivers):
    first = receivers[0]
    first.location = '/new'
    postroom.enqueue('orders', '1', '--header', 'X-Own=mine')
    relay = postroom.start('relay', '--to', f'{first.url}/old?follow=1&{HIDDEN}')
    wait_until(lambda: len(first.requests) >= 2, 'the redirect')
    relay.terminate()
    relay.communicate()
    assert [path for _, path, _, _ in first.requests[:2]] == ['/old', '/new']
    assert first.headers(1)['x-token'] == 'hush' and first.headers(1)['x-own'] == 'mine'


def K4_redirect_back_to_first_origin_resends_no_secret(postroom, receivers):
    first, second = receivers
    first.location, second.location = f'{second.url}/b', f'{first.url}/c'
    postroom.enqueue('orders', '1')
    relay = postroom.start('relay', '--to', f'{first.url}/a?follow=2&{HIDDEN}')
    wait_until(lambda: len(first.requests) >= 2, 'the second redirect')
    relay.terminate()
    relay.communicate()
    assert 'hush' in str(first.requests[0]) and first.requests[1][1] == '/c'
    assert 'hush' not in str(first.requests[1]) and 'hush' not in str(second.requests)


@pytest.mark.parametrize('rest', ['/hooks/hush?query=token=hush', '/hush/{topic}?query=key={key}%26t=hush',
                                  '/{topic}/hush'])
def G1_secrets_behind_the_host_are_hidden(postroom, tmp_path, rest):
    port = free_port()
    url = f'http://127.0.0.1:{port}{rest}'
    (tmp_path / 'relay.yaml').write_text(f'sinks:\n  web:\n    url: "{url}"\nroutes:\n  - sink: web\n')
    postroom.enqueue('orders', '1')
    shown = [postroom('relay', '--check', '--to', url), postroom('-c', 'relay.yaml', 'relay', '--check'),
             postroom('-c', 'relay.yaml', 'relay', '--check', '--json')]
    assert all(result.code == 0 and f'127.0.0.1:{port}' in result.out for result in shown), shown
    relay = postroom.start('relay', '--to', url, '--log-level', 'debug')
    lines = []
    for line in relay.stderr:
        lines.append(line)
        if b'127.0.0.1' in line:
            break
    process = pathlib.Path('/proc', str(relay.pid), 'cmdline').read_bytes()
    relay.terminate()
    said = b''.join(lines) + relay.stderr.read()
    relay.wait()
    assert b'hush' not in process and b'hush' not in said, (process, said)
    for result in shown:
        assert 'hush' not in result.out + result.err, result
    assert b'127.0.0.1' in process
    if '{topic}' in rest:
        assert b'{topic}' in process and all('{topic}' in result.out for result in shown)
