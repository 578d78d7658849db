# SPDX-License-Identifier: Apache-2.0
"""A hostile client costs its own connections, and never a delivery."""
import contextlib
import os
import pathlib
import socket
import threading

import pytest

from conftest import sanitized, wait_until
from serving import answers, read_all, serve

HOST = b'Host: localhost\r\n'


def hold(admin, count, data, source='127.0.0.1'):
    """Connections that send data and then nothing, as far as they are let in."""
    held = []
    for _ in range(count):
        try:
            connection = socket.create_connection((admin.host, admin.port), timeout=5, source_address=(source, 0))
            connection.sendall(data)
            held.append(connection)
        except OSError:
            break
    return held


class Attack(threading.Thread):
    """Repeats an action until it is stopped."""

    def __init__(self, admin, act):
        super().__init__(daemon=True)
        self.admin, self.act, self.over, self.times = admin, act, threading.Event(), 0

    def run(self):
        while not self.over.is_set():
            try:
                self.act(self.admin)
            except OSError:
                pass
            self.times += 1

    def __enter__(self):
        self.start()
        wait_until(lambda: self.times > 2, 'the attack')
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def crawl(admin):
    for connection in hold(admin, 40, b'GET /livez HTTP/1.1\r\nHost'):
        connection.close()


def flood_headers(admin):
    admin.raw(b'GET /livez HTTP/1.1\r\n' + HOST + b'X-Y: %s\r\n' % (b'z' * 1000) * 100)


def connect_often(admin):
    for connection in [admin.connect() for _ in range(100)]:
        connection.close()


def never_read(admin):
    connection = admin.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    connection.sendall((b'GET /api/v1/openapi.json HTTP/1.1\r\n' + HOST + b'\r\n') * 100)
    connection.close()


def ask_for_everything(admin):
    for path in ('/api/v1/outbox.ndjson', '/api/v1/stats', '/api/v1/outbox?page=100', '/metrics', '/api/v1/outbox/groups'):
        admin('GET', path)


@pytest.mark.parametrize('act', [crawl, flood_headers, connect_often, never_read, ask_for_everything])
def P1_attack_does_not_stop_delivery(postroom, act):
    admin = serve(postroom, '--to', 'file:out.ndjson', '--poll-interval', '20ms')
    with Attack(admin, act):
        ids = {postroom.enqueue('t', '{"n": %d}' % n) for n in range(10)}
        wait_until(lambda: all(postroom.show(id)['status'] == 'delivered' for id in ids), 'all to be delivered')
    wait_until(lambda: answers(admin), 'the server to answer again')
    assert admin.process.poll() is None
    admin.stop()


def P1_relay_stops_cleanly_during_an_attack(postroom):
    """libmicrohttpd must not be stopped while it answers a malformed request."""
    for act in (flood_headers, flood_headers, flood_headers, never_read, connect_often):
        admin = serve(postroom, '--to', 'null:')
        with Attack(admin, act), Attack(admin, act), Attack(admin, act), Attack(admin, act):
            admin.stop()


def P1_idle_connections_are_closed(postroom):
    admin = serve(postroom, '--to', 'null:')
    held = hold(admin, 30, b'POST /api/v1/outbox/retry HTTP/1.1\r\n' + HOST + b'Content-Length: 10\r\n\r\n')
    assert len(held) == 30
    wait_until(lambda: sockets(admin) > 1, 'the connections to be accepted')
    wait_until(lambda: sockets(admin) == 1, 'them to be closed')
    for connection in held:
        connection.close()


class Drip(Attack):
    """Slow clients of some addresses: each sends the next byte of its header before it counts as idle."""

    def __init__(self, admin, sources):
        self.held = [one for source in sources for one in hold(admin, 40, b'GET /livez HTTP/1.1\r\nX: ', source)]
        super().__init__(admin, self.drip)

    def drip(self, _):
        for connection in self.held:
            try:
                connection.send(b'x')
            except OSError:  # it had to make room
                pass
        self.over.wait(0.1)

    def __exit__(self, *args):
        super().__exit__(*args)
        for connection in self.held:
            connection.close()


@pytest.mark.parametrize('sources', [['127.0.0.1'], ['127.0.0.2', '127.0.0.3', '127.0.0.4']])
def P1_slow_clients_do_not_keep_others_out(postroom, sources):
    admin = serve(postroom, '--to', 'null:')
    with Drip(admin, sources):
        for _ in range(10):
            wait_until(lambda: answers(admin), 'an answer during the attack')
        assert sockets(admin) <= 1 + 64 + 16
    admin.stop()


def memory(admin):
    """KiB that the process has in memory."""
    with open(f'/proc/{admin.process.pid}/status', encoding='ascii') as file:
        return next(int(line.split()[1]) for line in file if line.startswith('VmRSS'))


def sockets(admin):
    folder, count = f'/proc/{admin.process.pid}/fd', 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(f'{folder}/{name}').startswith('socket:')
        except FileNotFoundError:  # closed meanwhile
            pass
    return count


def priorities(admin):
    """How nice each thread is, by its name."""
    found, folder = {}, f'/proc/{admin.process.pid}/task'
    for thread in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            name, rest = pathlib.Path(folder, thread, 'stat').read_text(encoding='ascii').split('(', 1)[1].rsplit(')', 1)
            found.setdefault(name, set()).add(int(rest.split()[16]))
    return found


@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) == 19, reason='there is no lower priority')
def P1_serving_thread_yields_to_the_workers(postroom):
    admin = serve(postroom, '--to', 'null:')
    found = priorities(admin)
    own = os.getpriority(os.PRIO_PROCESS, admin.process.pid)
    lower = {name: nice for name, nice in found.items() if nice != {own}}
    assert len(lower) == 1 and all(max(nice) == min(19, own + 10) for nice in lower.values()), found
    admin.stop()


def P1_unread_export_is_given_up(postroom):
    lines = '\n'.join('{"topic": "t", "payload": {"fill": "%s"}}' % ('x' * 100000) for _ in range(400))
    postroom.ok('enqueue', '--ndjson', '-', input=lines)
    admin = serve(postroom, '--to', 'null:', '--namespace', 'none')
    wait_until(lambda: sockets(admin) == 1, 'the first connections to be closed')
    before = memory(admin)
    held = []
    for _ in range(5):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((admin.host, admin.port))
        connection.sendall(b'GET /api/v1/outbox.ndjson HTTP/1.1\r\n' + HOST + b'\r\n')
        connection.recv(1000)
        held.append(connection)
    assert sockets(admin) == 6
    # They wait for their readers, and others do not wait for them.
    assert admin.get('/api/v1/stats')['pending'] == 400
    wait_until(lambda: sockets(admin) == 1, 'unread connections to be closed')
    grown = memory(admin) - before
    # All rows are 40 MB, for each of the five. A sanitizer keeps freed memory.
    assert sanitized() or grown < 40000, f'{grown} KiB more in memory'
    for connection in held:
        answer = read_all(connection)
        assert not answer.endswith(b'0\r\n\r\n'), 'a cut export looks complete'
        connection.close()
    admin.stop()


def P1_unread_large_answers_have_a_limit_together(postroom):
    pathlib.Path(postroom.cwd, 'large').write_text('{"topic": "t", "payload": {"fill": "%s"}}' % ('x' * 12000000))
    postroom.ok('enqueue', '--ndjson', 'large', '--max-payload', '16777216')
    admin = serve(postroom, '--to', 'null:', '--namespace', 'none')
    id = admin.get('/api/v1/outbox')['items'][0]['id']
    wait_until(lambda: sockets(admin) == 1, 'the first connections to be closed')
    before, held, heads = memory(admin), [], []
    for _ in range(20):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((admin.host, admin.port))
        connection.sendall(b'GET /api/v1/outbox/%s HTTP/1.1\r\n' % id.encode() + HOST + b'\r\n')
        heads.append(connection.recv(12))
        held.append(connection)
    # The server closes unread connections after some seconds, which makes room again.
    assert heads[0] == b'HTTP/1.1 200' and b'HTTP/1.1 503' in heads, heads
    assert admin.get('/api/v1/stats')['pending'] == 1
    grown = memory(admin) - before
    # All of them are 240 MB. A sanitizer keeps freed memory.
    assert sanitized() or grown < 160000, f'{grown} KiB more in memory'
    for connection in held:
        connection.close()
    wait_until(lambda: admin('GET', f'/api/v1/outbox/{id}').code == 200, 'the message to be shown again')
    admin.stop()


def P1_stop_does_not_wait_for_clients(postroom):
    admin = serve(postroom, '--to', 'null:')
    held = hold(admin, 10, b'GET /livez HTTP/1.1\r\nHost') + hold(admin, 5, b'GET /api/v1/stats HTTP/1.1\r\n' + HOST + b'\r\n')
    admin.stop()
    for connection in held:
        connection.close()
