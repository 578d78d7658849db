# SPDX-License-Identifier: Apache-2.0
"""postroom top: on a terminal, in a pipe, with a relay and without one."""
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from conftest import PROGRAM, wait_until

CONTROL = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')
RATE = {'delivered_per_second': 12.5, 'failed_per_second': 0.5, 'failure_ratio': 0.04}
ANSWERS = {
    '/api/v1/stats': {
        'pending': 41, 'processing': 1, 'failed_pending': 3, 'scheduled': 2, 'dead': 7,
        'backlog': 42, 'capped': False, 'oldest_age_seconds': 75.2, 'status': 'degraded',
        'rates': {'1m': RATE, '5m': RATE, '15m': RATE},
        'history': [{'delivered': 1, 'failed': 0, 'p50_seconds': 0.012, 'p99_seconds': 1.5},
                    {'delivered': 0, 'failed': 0, 'p50_seconds': None, 'p99_seconds': None}]},
    '/api/v1/topics': {'capped': False, 'items': [
        {'namespace': 'default', 'topic': name, 'pending': n, 'processing': 0,
         'failed_pending': 0, 'dead': 0, 'oldest_age_seconds': n}
        for n, name in enumerate(['small, "quoted" ]}', 'orders.created', 'evil\x1b[31m\n'])]},
    '/api/v1/sinks': {'items': [
        {'name': 'bus', 'breaker': 'open', 'last_error': 'connection refused', 'in_flight': 1,
         'delivered': 99, 'failed': 4}]},
    '/api/v1/outbox/groups?status=dead': {'capped': False, 'items': [
        {'topic': 'orders.created', 'example_error': 'HTTP 422', 'count': 7}]},
}


class Relay(ThreadingHTTPServer):
    """Answers as the admin server does, with figures that never change."""

    def __init__(self, answers=None, code=200):
        self.answers = {path: json.dumps(answer).encode() for path, answer in ANSWERS.items()}
        self.answers.update(answers or {})
        self.code, self.tokens = code, []
        super().__init__(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_address[1]}'


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 -- the name is the library's
        self.server.tokens.append(self.headers.get('Authorization'))
        answer = self.server.answers[self.path]
        self.send_response(self.server.code)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def relay():
    server = Relay()
    yield server
    server.shutdown()
    server.server_close()


class Screen:
    """A terminal whose last picture can be read."""

    def __init__(self, postroom, *args, rows=40, columns=120):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = postroom.start('top', *args, stdin=self.slave, stdout=self.slave,
                                      stderr=self.slave, start_new_session=True)
        self.text = ''

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def read_until(self, condition):
        def check():
            self.text += os.read(self.master, 65536).decode('utf-8', 'replace')
            return condition(self.text)
        wait_until(check, 'the screen')

    def picture(self):
        """The lines of the last complete picture."""
        self.text = ''
        self.read_until(lambda text: re.search(r'\x1b\[H.*?\x1b\[J', text, re.S))
        last = re.search(r'\x1b\[H(.*?)\x1b\[J', self.text, re.S).group(1)
        return CONTROL.sub('', last).split('\r\n')

    def end(self):
        """The exit code; the terminal has to be as it was."""
        os.set_blocking(self.master, False)

        def ended():
            try:
                self.text += os.read(self.master, 65536).decode('utf-8', 'replace')
            except BlockingIOError:
                pass
            return self.process.poll() is not None
        wait_until(ended, 'top to end')
        assert termios.tcgetattr(self.slave)[3] == self.before[3], 'echo or line mode is lost'
        # Its last output may still be on its way, in several pieces.
        wait_until(lambda: ended() and self.text.endswith('\x1b[?25h\x1b[?1049l'), 'its last words')
        os.close(self.master)
        os.close(self.slave)
        return self.process.returncode


def P1_top_shows_the_figures_of_a_relay(postroom, relay):
    screen = Screen(postroom, '--url', relay.url, '--interval', '100ms')
    screen.read_until(lambda text: '\x1b[?1049h' in text)
    lines = screen.picture()
    text = '\n'.join(lines)
    assert lines[0].startswith('postroom degraded') and relay.url in lines[0]
    assert 'delivered/s  12.5 (1m)' in text and 'p50 12ms p99 1.5s' in text
    assert re.search(r'backlog +42 +oldest 75s +retrying 3 +scheduled 2', text)
    assert re.search(r'^bus +open +1 +99 +4 +connection refused', text, re.M)
    topics = [line for line in lines if re.match('evil|orders.created +1|small', line)]
    assert len(topics) == 3 and topics[0].startswith('evil') and topics[2].startswith('small')
    assert '\x1b[31m\n' not in screen.text.replace('\r', '')
    assert re.search(r'^ +7 +orders.created +HTTP 422', text, re.M)
    os.write(screen.master, b'q')
    assert screen.end() == 0


def P1_top_marks_counts_that_are_not_complete(postroom):
    stats = {**ANSWERS['/api/v1/stats'], 'dead': 100000, 'capped': True}
    topics = {**ANSWERS['/api/v1/topics'], 'capped': True}
    server = Relay({'/api/v1/stats': json.dumps(stats).encode(), '/api/v1/topics': json.dumps(topics).encode()})
    screen = Screen(postroom, '--url', server.url, '--interval', '1h')
    text = '\n'.join(screen.picture())
    assert re.search(r'^backlog +42 +oldest', text, re.M) and re.search(r'^dead +100000\+ ', text, re.M)
    assert re.search(r'^TOPIC \(of a sample\) +PENDING', text, re.M)
    os.write(screen.master, b'q')
    assert screen.end() == 0
    assert postroom.ok('--json', 'top', '--url', server.url, '--count', '1').object['capped'] is True
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM, 'ctrl-c'])
def P1_top_restores_the_terminal_when_interrupted(postroom, relay, how):
    screen = Screen(postroom, '--url', relay.url, '--interval', '1h')
    screen.picture()
    if how == 'ctrl-c':
        os.killpg(screen.process.pid, signal.SIGINT)
    else:
        screen.process.send_signal(how)
    assert screen.end() == 0


@pytest.mark.parametrize('rows, columns', [(40, 120), (10, 40), (3, 20), (1, 1)])
def P1_top_never_draws_beyond_the_screen(postroom, relay, rows, columns):
    screen = Screen(postroom, '--url', relay.url, '--interval', '1h', rows=24, columns=80)
    screen.picture()
    screen.resize(rows, columns)
    screen.process.send_signal(signal.SIGWINCH)
    lines = screen.picture()
    assert 0 < len(lines) <= rows
    assert [line for line in lines if len(line) > columns] == []
    os.write(screen.master, b'q')
    assert screen.end() == 0


def P1_top_prints_one_line_per_update_in_a_pipe(postroom, relay):
    result = postroom.ok('top', '--url', relay.url, '--count', '2', '--interval', '100ms')
    assert len(result.lines) == 2 and '\x1b' not in result.out
    assert result.lines[0].startswith('pending=41 processing=1 failed_pending=3 scheduled=2 dead=7 '
                                      'backlog=42 capped=0 oldest_age_seconds=75.200 status=degraded ')
    assert result.lines[0].endswith('open_breakers=1')
    assert postroom.ok('--json', 'top', '--url', relay.url, '--count', '1').object['backlog'] == 42
    assert postroom.ok('--json', 'top', '--url', relay.url, '--count', '1').object['capped'] is False


def P1_top_sends_its_token(postroom, relay):
    postroom.ok('top', '--url', relay.url, '--count', '1', '--token', 'secret')
    assert set(relay.tokens) == {'Bearer secret'}
    relay.tokens.clear()
    postroom.ok('top', '--url', relay.url + '/', '--count', '1', env={'POSTROOM_ADMIN_TOKEN': 'env'})
    assert set(relay.tokens) == {'Bearer env'}


def P1_top_counts_the_database_without_a_relay(postroom):
    postroom.enqueue()
    for url in ('none', 'http://127.0.0.1:1'):
        result = postroom.ok('top', '--url', url, '--count', '1')
        assert result.out.startswith('pending=1 processing=0 ')
        assert 'delivered_per_second' not in result.out


def P1_top_says_why_neither_relay_nor_database_answers(postroom):
    server = Relay(code=401)
    for args in (('--url', server.url), ('--url', 'http://127.0.0.1:1')):
        said = postroom.fails(1, 'top', *args, '--count', '1')
        assert args[1].removeprefix('http://') in said and 'there is no database' in said
    assert '--token' in postroom.fails(1, 'top', '--url', server.url, '--count', '1')
    assert 'no relay' not in postroom.fails(1, 'top', '--url', 'none', '--count', '1')
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize('answer', [b'', b'no JSON', b'[' * 100000, b'[]', b'{"rates": 7, "history": {}}'])
def P1_top_survives_malformed_responses(postroom, answer):
    postroom.enqueue()
    server = Relay(dict.fromkeys(ANSWERS, answer))
    assert postroom.ok('top', '--url', server.url, '--count', '1').out.startswith('pending=')
    server.shutdown()
    server.server_close()


def P1_top_refuses_an_unusable_url(postroom):
    postroom.enqueue()
    assert 'http://' in postroom.fails(2, 'top', '--url', 'ftp://x', '--count', '1')


def watched(postroom, *args):
    from importlib import import_module
    import sys
    sys.path.insert(0, str(os.path.join(os.path.dirname(__file__), '..', 'relay')))
    return import_module('scraping').Watched(postroom, 'relay', *args)


def P1_top_shows_a_real_relay(postroom):
    relay = watched(postroom, '--to', 'exec:exit 1', '--max-attempts', '1')
    postroom.enqueue('orders.created')
    relay.wait_for(lambda m: m.sum('postroom_messages_dead_total') == 1)
    wait_until(lambda: postroom.ok('--json', 'top', '--url', relay.url, '--count',
                                   '1').object['dead'] == 1)
    line = postroom.ok('top', '--url', relay.url, '--count', '1').out
    assert 'failed_per_second=' in line and 'open_breakers=0' in line


class Tmux:
    """A terminal emulator, which shows what a user would see."""

    def __init__(self, cwd, command, columns=100, rows=30):
        self.base = ['tmux', '-L', f'postroom-{os.getpid()}', '-f', '/dev/null']
        subprocess.run([*self.base, 'new-session', '-d', '-x', str(columns), '-y', str(rows), '-c', cwd,
                        f'{command}; echo "ended with $?"; cat'], check=True)

    def screen(self):
        return subprocess.run([*self.base, 'capture-pane', '-p'], check=True, stdout=subprocess.PIPE, text=True).stdout

    def shows(self, *texts):
        wait_until(lambda: all(text in self.screen() for text in texts), texts)

    def press(self, key):
        subprocess.run([*self.base, 'send-keys', key], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([*self.base, 'kill-server'], check=False)


@pytest.mark.skipif(not shutil.which('tmux'), reason='tmux is missing')
def P1_top_in_a_terminal_follows_a_real_relay(postroom, tmp_path):
    postroom.enqueue('orders.created')
    relay = watched(postroom, '--to', 'exec:test -e up && exit 1 || exit 127', '--max-attempts', '1')
    command = shlex.join([os.path.abspath(PROGRAM), '-d', postroom.db, 'top', '--url', relay.url, '--interval', '100ms'])
    with Tmux(tmp_path, command) as terminal:
        # The sink is unreachable, then fails.
        terminal.shows('postroom degraded', relay.url, 'backlog', 'orders.created')
        wait_until(lambda: re.search(r'^exec +(half-)?open', terminal.screen(), re.M), 'the open breaker')
        (tmp_path / 'up').touch()
        terminal.shows('exit status 1')
        wait_until(lambda: re.search(r'^exec +closed', terminal.screen(), re.M), 'the closed breaker')
        for _ in range(20):
            postroom.enqueue('mail.sent')
        wait_until(lambda: re.search(r'^ +20 +mail.sent +exit status 1', terminal.screen(), re.M), 'the dead letters')
        terminal.press('q')
        terminal.shows('ended with 0')
        # The shell's screen is restored, without any of the figures.
        assert 'backlog' not in terminal.screen()
