# SPDX-License-Identifier: Apache-2.0
"""A relay with an admin server, and requests to it, byte by byte where that matters."""
import http.client
import json
import re
import socket
import threading

from conftest import PATIENCE, wait_until

LISTENING = re.compile(r'_ADMIN_LISTENING address=(\S+):(\d+)')


class Answer:
    def __init__(self, code, headers, body):
        self.code, self.headers, self.body = code, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The code of an error, whose shape is checked."""
        error = self.json['error']
        assert set(self.json) == {'error'} and set(error) == {'code', 'message'}, self
        assert error['message'], self
        return error['code']

    def __repr__(self):
        return f'{self.code} {self.headers}\n{self.body[:2000]!r}'


class Admin:
    """A process with an admin server on a port of its own."""

    def __init__(self, process, token=None):
        self.process, self.token, self.lines = process, token, []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        found = wait_until(self.find_address, 'the server to listen')
        self.host, self.port = found[1], int(found[2])

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode('utf-8', 'replace').rstrip('\n'))

    def find_address(self):
        assert self.process.poll() is None, self.lines
        return next(filter(None, map(LISTENING.search, list(self.lines))), None)

    def logged(self, event):
        return [line for line in list(self.lines) if line.startswith(event + ' ')]

    def __call__(self, method, path, body=None, headers=None, token=None):
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        headers = dict(headers or {})
        token = self.token if token is None else token
        if token:
            headers.setdefault('Authorization', f'Bearer {token}')
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **options):
        answer = self('GET', path, **options)
        assert answer.code == 200, answer
        return answer.json

    def post(self, path, body=None, **options):
        answer = self('POST', path, body, **options)
        assert answer.code == 200, answer
        return answer.json

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=PATIENCE)

    def raw(self, data):
        """All that is answered to these bytes until the server closes."""
        with self.connect() as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has answered and closed already
            return read_all(connection)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.lines
        self.reader.join(PATIENCE)  # all that it has logged


def answers(admin):
    """Or are all connections that one address may have still taken?"""
    try:
        return admin('GET', '/livez').code == 200
    except OSError:
        return False


def read_all(connection):
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b''.join(parts)


def serve(postroom, *args, token=None, env=None, command='relay', listen='127.0.0.1:0'):
    """Serving, with its database open."""
    admin = Admin(postroom.start(command, '--admin', listen, *args, env=env), token)
    wait_until(lambda: admin('GET', '/readyz', headers={'Host': 'localhost'}).code == 200, 'the relay to be ready')
    return admin


def make_dead(postroom, count, topic='orders.created', error='exit 1'):
    """Dead letters with exit status 1 as their reason; their ids."""
    ids = [postroom.enqueue(topic, '{"n": %d}' % n) for n in range(count)]
    postroom.ok('relay', '--drain', '--to', f'exec:{error}', '--max-attempts', '1', '--topic', topic)
    return ids
