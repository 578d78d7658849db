# SPDX-License-Identifier: Apache-2.0
"""What tests of the program share: run it as a user would, and wait for what it does.

The program under test is $POSTROOM, build/postroom unless set. Every test has a
directory of its own (tmp_path) as its working directory, and a database in it
that $POSTROOM_DB names, so that a command line needs no --db.
"""
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get('POSTROOM') or str(ROOT / 'build' / 'postroom')
# Seconds after which a condition will never come true; the long forms crowd the machine for longer.
PATIENCE = 300 if os.environ.get('POSTROOM_SOAK') == '1' else 120


def can_trace():
    if not shutil.which('strace'):
        return False
    return subprocess.run(['strace', '-qq', '-o', '/dev/null', 'true'], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason='strace is missing or may not trace here')


def sanitized():
    """Whether the program was built with a sanitizer, whose shadow memory would be measured too."""
    program = pathlib.Path(PROGRAM).read_bytes()
    return b'__asan_init' in program or b'__tsan_init' in program


def wait_until(condition, what='the condition'):
    """Waits for condition() to be true, and returns what it was."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f'waited {PATIENCE} s for {what}'
        time.sleep(0.01)


def wait_for_signal(pid):
    """Waits until the program has acted on a signal: its main thread has taken it and slept again."""
    def status(name):
        return pathlib.Path(f'/proc/{pid}/status').read_text().split(f'\n{name}:')[1].split()[0]

    def sleeps():
        return int(status('voluntary_ctxt_switches'))
    wait_until(lambda: int(status('ShdPnd'), 16) == 0, 'the signal to be taken')
    before = sleeps()
    wait_until(lambda: sleeps() >= before + 2, 'the main thread to sleep again')


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def objects(self):
        """stdout as one JSON object a line."""
        return [json.loads(line) for line in self.lines]

    @property
    def object(self):
        objects = self.objects
        assert len(objects) == 1, self.out
        return objects[0]

    def __repr__(self):
        return f'exit {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-6000:]}'


class Postroom:
    """postroom('list', '--json') runs the program; the answer has code, out and err."""

    def __init__(self, db, cwd, program=PROGRAM):
        self.db, self.cwd, self.processes = str(db), str(cwd), []
        self.program = str(program)

    def environment(self, extra=None):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith('POSTROOM') and name not in ('NO_COLOR', 'TERM')}
        env['POSTROOM_DB'] = self.db
        env['TERM'] = 'xterm'
        env.update(extra or {})
        return env

    def __call__(self, *args, input=None, env=None, cwd=None, **options):
        if isinstance(input, str):
            input = input.encode()
        if input is None and 'stdin' not in options:
            options['stdin'] = subprocess.DEVNULL
        for stream in ('stdout', 'stderr'):
            options.setdefault(stream, subprocess.PIPE)
        done = subprocess.run([self.program, *map(str, args)], input=input, cwd=cwd or self.cwd,
                              env=self.environment(env), timeout=PATIENCE * 5, **options)
        return Result(done.returncode, (done.stdout or b'').decode('utf-8', 'replace'),
                      (done.stderr or b'').decode('utf-8', 'replace'))

    def ok(self, *args, **options):
        """The same, for what must succeed."""
        result = self(*args, **options)
        assert result.code == 0, str(result)  # pytest cuts what is not a string
        return result

    def fails(self, code, *args, **options):
        """For what must fail: with this status, one line on stderr, and nothing on stdout."""
        result = self(*args, **options)
        assert result.code == code, result
        assert result.out == '', result
        lines = result.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith('postroom: '), result
        return lines[0].removeprefix('postroom: ')

    def start(self, *args, env=None, cwd=None, **options):
        """In the background; ended with the test if it still runs."""
        for stream in ('stdout', 'stderr'):
            options.setdefault(stream, subprocess.PIPE)
        options.setdefault('stdin', subprocess.DEVNULL)
        process = subprocess.Popen([self.program, *map(str, args)], cwd=cwd or self.cwd,
                                   env=self.environment(env), **options)
        self.processes.append(process)
        return process

    def enqueue(self, topic='orders.created', payload='{}', *args, **options):
        """Writes one message and returns its id."""
        return self.ok('enqueue', topic, payload, '--json', *args, **options).object['id']

    def rows(self, *args):
        """Whole rows, newest first."""
        return self.ok('list', '--json', '--limit', '1000000', *args).objects

    def show(self, id):
        return self.ok('show', id, '--json').object

    def stats(self):
        return self.ok('stats', '--json').object

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


@pytest.fixture
def db(tmp_path):
    """The path of the test's database, which does not exist yet."""
    return tmp_path / 'outbox.db'


@pytest.fixture
def postroom(db, tmp_path):
    program = Postroom(db, tmp_path)
    yield program
    program.end()


def sqlite_runner(db):
    def run(statement, *parameters):
        connection = sqlite3.connect(db, timeout=PATIENCE)
        try:
            with connection:
                return connection.execute(statement, parameters).fetchall()
        finally:
            connection.close()
    return run


@pytest.fixture
def sql(db):
    """sql('SELECT …') runs one statement on the database, by a connection of its own."""
    return sqlite_runner(db)
