# SPDX-License-Identifier: Apache-2.0
"""postroom doctor with names that others chose and servers that do not answer as expected."""
import contextlib
import socket
import sqlite3
import subprocess
import threading

import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, only

NOW = ('--patience', '1ms')
NAMES = ["it's", "'; touch owned; '", '$(touch owned)', '`touch owned`', '"a" \\ b', 'a b', '*', 'x;touch owned #']


def run(program, command):
    """As an operator does who copies it."""
    assert '\n' not in command
    return subprocess.run(['bash', '-c', command.replace('postroom', program.program, 1)], check=True, cwd=program.cwd,
                          env=program.environment(), stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def migrated(postroom):
    postroom.ok('migrate')
    return postroom


@pytest.mark.parametrize('name', NAMES)
def U2_command_for_a_topic_runs_nothing_that_is_in_its_name(migrated, sql, tmp_path, name):
    sql('INSERT INTO postroom_outbox (topic, namespace, payload) VALUES (?, ?, ?)', name, name, '{}')
    (tmp_path / 'c.yaml').write_text('sinks: { out: { url: "null:" } }\nroutes: [ { topic: "orders", sink: out } ]\n')
    found = only(migrated, 'unrouted', 'warning', '-c', tmp_path / 'c.yaml')
    run(migrated, found['command'])
    assert not (tmp_path / 'owned').exists()


@pytest.mark.parametrize('name', NAMES)
def U2_command_for_a_handler_runs_nothing_that_is_in_its_name(migrated, tmp_path, name):
    migrated.ok('inbox', 'submit', name, 'id', '{}')
    found = wait_until(lambda: findings(migrated, *NOW), 'a millisecond')
    assert name in run(migrated, found[0]['command'] + ' --json').encode().decode('unicode_escape')
    assert not (tmp_path / 'owned').exists()


def U2_commands_for_a_path_with_quotes_work(tmp_path):
    directory = tmp_path / "it's a $(touch owned) \"place\""
    directory.mkdir()
    program = Postroom(directory / 'outbox.db', tmp_path)
    program.ok('migrate')
    (directory / 'other').hardlink_to(directory / 'outbox.db')
    found = only(program, 'file-names', 'problem')
    names = subprocess.run(['bash', '-c', found['command'].replace('find / ', f'find {tmp_path} ')], check=True, cwd=tmp_path,
                           stdout=subprocess.PIPE, text=True).stdout
    assert len(names.splitlines()) == 2 and not (tmp_path / 'owned').exists()


def U2_text_begins_with_the_worst_and_ends_with_the_summary(migrated, sql, tmp_path):
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) VALUES ('t', '{}', 'delivered', 1000)")
    migrated.enqueue('invoices')
    sql('DROP VIEW postroom_messages')
    (tmp_path / 'c.yaml').write_text('sinks: { out: { url: "exec:/none/x" } }\nroutes: [ { topic: "orders", sink: out } ]\n')
    lines = migrated('doctor', '-c', tmp_path / 'c.yaml', '--verbose').lines
    levels = [line.split()[0] for line in lines[:-1] if not line.startswith(' ')]
    order = ['problem', 'warning', 'note', 'skipped', 'ok']
    assert levels == sorted(levels, key=order.index) and set(levels) >= {'problem', 'warning', 'note', 'ok'}, levels
    assert lines[-1].startswith('2 problems, 1 warning, 1 note; '), lines[-1]


class Redis:
    """Answers each command from a table; without an answer it closes the connection."""

    def __init__(self, **answers):
        self.answers = answers
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = f'redis://127.0.0.1:{self.listener.getsockname()[1]}/orders'
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile('rb') as stream:
                while head := stream.readline():
                    words = []
                    for _ in range(int(head[1:])):
                        stream.readline()
                        words.append(stream.readline().strip().decode())
                    answer = self.answers.get(words[0], b'+OK\r\n')
                    if answer is None:
                        break
                    connection.sendall(answer)


def bulk(text):
    return b'$%d\r\n%s\r\n' % (len(text), text)


DURABLE = bulk(b'role:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n')
REPLIES = {
    'other server': ({'INFO': bulk(b'role:master\r\n'), 'TYPE': b'+stream\r\n'}, 'does not say'),
    'no type': ({'INFO': DURABLE, 'TYPE': b'-NOPERM no\r\n'}, 'type of the key'),
    'closed after info': ({'INFO': DURABLE, 'TYPE': None}, ''),
    'info is a number': ({'INFO': b':1\r\n', 'TYPE': b'+stream\r\n'}, 'may not run INFO'),
}


@pytest.mark.parametrize('name', REPLIES)
def U2_redis_that_does_not_answer_a_question_is_skipped_and_not_ok(migrated, name):
    answers, words = REPLIES[name]
    server = Redis(**answers)
    found = only(migrated, 'sink:to', 'skipped', '--to', server.url)
    assert words in found['detail'], found
    server.listener.close()


INFOS = {'bytes': b'\xff\xfe\x00' * 1000, 'long': b'aof_enabled:' * 50000, 'cut': b'role',
         'escape': b'\x1b]0;x\x07aof_enabled:0', 'empty': b''}


@pytest.mark.parametrize('info', INFOS.values(), ids=INFOS)
def U2_hostile_redis_info_leaves_valid_findings(migrated, info):
    server = Redis(INFO=bulk(info), TYPE=b'+stream\r\n')
    found = {one['check']: one for one in examine(migrated, '--to', server.url)}
    assert found['sink:to']['level'] in ('skipped', 'warning'), found['sink:to']
    server.listener.close()


def U2_hostile_type_of_a_redis_key_leaves_a_valid_finding(migrated):
    server = Redis(INFO=DURABLE, TYPE=b'+\xff\x1b[2J' + b'x' * 100000 + b'\r\n')
    found = only(migrated, 'sink:to', 'problem', '--to', server.url)
    assert 'not a stream' in found['title'], found['title'][:200]
    assert not any(ord(c) < 32 and c != '\n' for c in migrated('doctor', '--to', server.url).out)
    server.listener.close()


class Nats:
    """Answers each question of the doctor with the next text."""

    def __init__(self, *answers):
        self.answers = answers
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.url = f'nats://127.0.0.1:{self.listener.getsockname()[1]}/orders'
        self.subjects = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile('rb') as stream, contextlib.suppress(OSError):
                self.talk(connection, stream)

    def talk(self, connection, stream):
        connection.sendall(b'INFO {"server_id":"x","version":"2.9.10","proto":1,"max_payload":1048576,"headers":true,'
                           b'"jetstream":true}\r\n')
        answers, subscriptions = iter(self.answers), []
        while line := stream.readline():
            words = line.split()
            if words[0] == b'PING':
                connection.sendall(b'PONG\r\n')
            elif words[0] == b'SUB':
                subscriptions.append(words[-1])
            elif words[0] in (b'PUB', b'HPUB'):
                stream.read(int(words[-1]) + 2)
                self.subjects.append(words[1].decode())
                answer = next(answers, b'{}')
                connection.sendall(b'MSG %s %s %d\r\n%s\r\n' % (words[2], subscriptions[-1], len(answer), answer))


STREAMS = {
    'wildcard': b'{"streams":["a.>"]}', 'line': b'{"streams":["a\\r\\nPUB x 0"]}', 'blank': b'{"streams":["a b"]}',
    'long': b'{"streams":["%s"]}' % (b'x' * 100000), 'empty': b'{"streams":[""]}', 'number': b'{"streams":[1]}',
    'object': b'{"streams":{"a":"b"}}', 'deep': b'[' * 5000 + b']' * 5000, 'text': b'hello', 'bytes': b'{"streams":["\xff"]}',
}


@pytest.mark.parametrize('answer', STREAMS.values(), ids=STREAMS)
def U2_hostile_answer_of_jetstream_is_never_ok(migrated, answer):
    server = Nats(answer)
    found = {one['check']: one for one in examine(migrated, '--to', server.url)}['sink:to']
    assert found['level'] in ('skipped', 'problem'), found
    assert all(' ' not in subject and '>' not in subject and len(subject) < 400 for subject in server.subjects), server.subjects
    server.listener.close()


def U2_name_of_a_stream_is_quoted_in_the_command(migrated, tmp_path):
    server = Nats(b'{"streams":["x;touch$IFSowned"]}', b'{"config":{"storage":"memory","no_ack":true}}')
    found = [one for one in findings(migrated, '--to', server.url) if one['level'] == 'problem']
    assert found[0]['command'] == "nats stream edit --ack 'x;touch$IFSowned'", found
    server.listener.close()


def U2_row_with_values_of_other_types_leaves_valid_findings(migrated, db):
    """SQLite keeps any type in any column, if the checks of the table are off."""
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute('PRAGMA ignore_check_constraints = ON')
    migrated.enqueue('orders')
    migrated.ok('inbox', 'submit', 'h', 'id', '{}')
    for table, columns in (('outbox', 'topic, namespace, created_at, next_attempt_at, key'), ('inbox', 'handler_name, created_at')):
        for column in columns.split(', '):
            for value in (b'\xff\x00\xfe', 'x' * 200000, 1e308, -2**63):
                try:
                    connection.execute(f'UPDATE postroom_{table} SET {column} = ?', (value,))
                except sqlite3.Error:
                    continue
                examine(migrated, *NOW)
                assert migrated('doctor', *NOW).code in (0, 1)
    connection.close()
