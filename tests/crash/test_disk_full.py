# SPDX-License-Identifier: Apache-2.0
"""A disk that is full, under the database and under a file: sink, and then has room again."""
import json
import os
import signal
import sqlite3

import pytest

from conftest import wait_until
from small_disk import small_disk

SIZE = 1 << 20


@pytest.fixture
def disk(tmp_path):
    """A file system of one megabyte."""
    with small_disk(tmp_path / 'disk', SIZE) as path:
        yield path


def fill(disk, keep=0):
    """Takes all room but keep bytes; delete the file to give it back."""
    ballast = disk / 'ballast'
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(file, bytes(4096)):
            pass
    except OSError:
        pass
    os.ftruncate(file, max(0, os.fstat(file).st_size - keep))
    os.close(file)
    return ballast


def messages_in(path):
    """Every line is whole, or was torn by the full disk and ended before the next."""
    found = []
    for line in path.read_bytes().split(b'\n'):
        try:
            found.append(json.loads(line)['payload']['n'])
        except (ValueError, KeyError, TypeError):
            assert not line.endswith(b'}'), line
    return found


def payload(n):
    return json.dumps({'n': n, 'fill': 'x' * 2000})


def E5_full_disk_is_reported_and_loses_nothing_reported_as_committed(postroom, disk, tmp_path):
    postroom.db = str(disk / 'outbox.db')
    postroom.ok('migrate')
    ballast = fill(disk, keep=200_000)
    committed = []
    while True:
        result = postroom('enqueue', 't', payload(len(committed)))
        if result.code != 0:
            break
        committed.append(len(committed))
    assert result.code == 1 and result.out == ''
    assert len(result.err.splitlines()) == 1 and 'full' in result.err, result
    assert committed
    line = postroom.fails(1, 'enqueue', 't', payload('too much'))
    assert 'full' in line
    ballast.unlink()
    postroom.ok('enqueue', 't', payload('later'))
    postroom.ok('relay', '--drain', '--to', f'file:{tmp_path / "out"}')
    assert sorted(map(str, messages_in(tmp_path / 'out'))) == sorted(map(str, [*committed, 'later']))


def E7_bulk_that_runs_out_of_room_reports_rows_written(postroom, disk, tmp_path):
    postroom.db = str(disk / 'outbox.db')
    postroom.ok('migrate')
    path = tmp_path / 'many'
    path.write_text(''.join(json.dumps({'topic': 't', 'payload': {'n': n, 'fill': 'x' * 2000}}) + '\n'
                            for n in range(1000)))
    result = postroom('enqueue', '--ndjson', path, '--batch-size', '10')
    assert result.code == 1 and 'full' in result.err, result
    count = postroom.stats()['pending']
    assert 0 < count < 1000 and count % 10 == 0
    assert str(count) in result.err, result


def stop_while_idle(relay, db):
    """SIGSTOP, but not while it holds the database's lock."""
    while True:
        relay.send_signal(signal.SIGSTOP)
        connection = sqlite3.connect(db, timeout=0, isolation_level=None)
        try:
            connection.execute('BEGIN IMMEDIATE')
            connection.execute('ROLLBACK')
            return
        except sqlite3.OperationalError:
            relay.send_signal(signal.SIGCONT)
        finally:
            connection.close()


def D5_relay_resumes_when_database_has_room_again(postroom, disk, tmp_path):
    postroom.db = str(disk / 'outbox.db')
    postroom.ok('enqueue', 't', payload(0))
    relay = postroom.start('relay', '--to', f'file:{tmp_path / "out"}', '--batch-size', '5')
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the first message')
    stop_while_idle(relay, postroom.db)
    for n in range(1, 20):
        postroom.ok('enqueue', 't', payload(n))
    ballast = fill(disk)
    relay.send_signal(signal.SIGCONT)
    while b'OUTBOX_STORE_TROUBLE' not in (line := relay.stderr.readline()):
        assert line, 'the relay gave up'
    assert b'full' in line, line
    ballast.unlink()
    wait_until(lambda: postroom.stats()['delivered'] == 20, 'all to be delivered')
    relay.terminate()
    relay.communicate()
    assert relay.returncode == 0
    assert sorted(messages_in(tmp_path / 'out')) == list(range(20))


def D5_relay_resumes_when_sink_has_room_again(postroom, disk):
    for n in range(30):
        postroom.ok('enqueue', 't', payload(n))
    out = disk / 'out'
    ballast = fill(disk, keep=20_000)
    relay = postroom.start('relay', '--to', f'file:{out}', '--batch-size', '3', '--workers', '1',
                           '--base-delay', '100ms', '--max-delay', '200ms')
    log = []
    while not log or b'o space left' not in log[-1]:
        log.append(relay.stderr.readline())
        assert log[-1], log
    ballast.unlink()
    wait_until(lambda: postroom.stats()['delivered'] == 30, 'all to be delivered')
    relay.terminate()
    relay.communicate()
    assert relay.returncode == 0
    found = messages_in(out)
    assert set(found) == set(range(30))
    assert postroom.stats()['dead'] == 0
