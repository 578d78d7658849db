# SPDX-License-Identifier: Apache-2.0
"""Death, and failure, at every system call by which a commit becomes durable.

strace ends the program just before its N-th call of one kind, for N = 1, 2, …
until it survives, for each kind there is between a message and the disk. Then,
in the same places, the call fails instead.
"""
import json
import os
import shutil
import sqlite3
import subprocess

import pytest

from conftest import PROGRAM, needs_strace

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
CALLS = ['pwrite64', 'write', 'fdatasync', 'fsync', 'ftruncate', 'unlink', 'openat', 'fcntl', 'mmap',
         'close']
# Calls of these kinds are so many, and so alike, that `make check` takes a sample.
STRIDE = {} if SOAK else {'openat': 5, 'fcntl': 7, 'mmap': 9, 'close': 7, 'pwrite64': 2}
RARE = ['fsync', 'ftruncate', 'unlink']  # there may be none
MESSAGES = 3


pytestmark = needs_strace


def traced(postroom, call, action, n, *args):
    """Runs the program with the n-th call of a kind, in any thread, made into something else."""
    env = postroom.environment()
    # The leak check of a sanitizer needs ptrace for itself.
    env['ASAN_OPTIONS'] = env.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
    done = subprocess.run(
        ['strace', '-f', '-qq', '-o', os.path.join(postroom.cwd, 'trace'), '-e', f'trace={call}', '-e',
         f'inject={call}:{action}:when={n}', PROGRAM, *args], cwd=postroom.cwd, env=env, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    with open(os.path.join(postroom.cwd, 'trace'), encoding='utf-8', errors='replace') as trace:
        hit = 'INJECTED' in (text := trace.read()) or 'killed by SIGKILL' in text
    return done.returncode, done.stderr.decode('utf-8', 'replace'), hit


def every(call, run):
    """run(n) for n = 1, 2, … until nothing was hit."""
    n, hits = 1, 0
    while run(n):
        n += STRIDE.get(call, 1)
        hits += 1
        assert n < 2000
    assert hits > 0 or call in RARE, f'{call} was never hit'


@pytest.fixture
def fresh(postroom, db, tmp_path):
    """fresh() puts the database back to how it was at first, with MESSAGES messages in it."""
    for n in range(MESSAGES):
        postroom.enqueue('t', '{"n":%d}' % n, '--dedupe-key', str(n))
    kept = tmp_path / 'kept.db'
    with sqlite3.connect(db) as source, sqlite3.connect(kept) as copy:
        source.backup(copy)
    source.close()
    copy.close()

    def again():
        for name in (db, f'{db}-wal', f'{db}-shm', tmp_path / 'out'):
            if os.path.exists(name):
                os.unlink(name)
        shutil.copy(kept, db)
    return again


def check_whole(sql):
    assert sql('PRAGMA integrity_check') == [('ok',)]


def enqueue_survives(postroom, sql, fresh, call, action, n, clear):
    """One enqueue with a fault in it. Its result must be true, and repeating it must help."""
    fresh()
    args = ['enqueue', 't', '{"n":"new"}', '--dedupe-key', 'new']
    status, errors, hit = traced(postroom, call, action, n, *args)
    check_whole(sql)
    there = sql("SELECT count(*) FROM postroom_outbox WHERE dedupe_key = 'new'")[0][0]
    if status == 0:
        assert there == 1, (call, n)
    clear(status, errors, there, n)
    postroom.ok(*args)
    assert sql('SELECT count(*), count(DISTINCT dedupe_key) FROM postroom_outbox') == [
        (MESSAGES + 1, MESSAGES + 1)]
    return hit


@pytest.mark.parametrize('call', CALLS)
def E1_enqueue_killed_at_any_call_is_atomic(postroom, sql, fresh, call):
    def clear(status, errors, there, n):
        assert status in (0, -9, 137), (call, n, errors)

    every(call, lambda n: enqueue_survives(postroom, sql, fresh, call, 'signal=KILL', n, clear))


@pytest.mark.parametrize('call', CALLS)
def U1_creation_of_tables_killed_at_any_call_can_be_repeated(postroom, db, sql, call):
    def first_enqueue(n):
        for name in (db, f'{db}-wal', f'{db}-shm', f'{db}-journal'):
            if os.path.exists(name):
                os.unlink(name)
        args = ['enqueue', 't', '{}', '--dedupe-key', 'first']
        status, errors, hit = traced(postroom, call, 'signal=KILL', n, *args)
        assert status in (0, -9, 137), (call, n, errors)
        postroom.ok(*args)
        check_whole(sql)
        assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]
        assert sql('SELECT count(*) FROM postroom_migrations') == [(1,)]
        assert sql('PRAGMA journal_mode') == [('wal',)]
        return hit

    every(call, first_enqueue)


@pytest.mark.parametrize('call', ['pwrite64', 'fdatasync', 'fcntl', 'close'])
@pytest.mark.parametrize('command, before, after', [
    (['retry', '--dead'], 'dead', {'pending': MESSAGES}),
    (['purge', '--status', 'dead', '--yes'], 'dead', {}),
    (['purge', '--status', 'delivered', '--yes'], 'delivered', {}),
])
def X1_operator_command_killed_at_any_call_is_atomic(postroom, sql, fresh, call, command,
                                                             before, after):
    def counts():
        return dict(sql('SELECT status, count(*) FROM postroom_outbox GROUP BY status'))

    def operate(n):
        fresh()
        sql('UPDATE postroom_outbox SET status = ?, delivered_at = 1, attempts = 1, claims = 1', before)
        status, errors, hit = traced(postroom, call, 'signal=KILL', n, *command)
        assert status in (0, -9, 137), (call, n, errors)
        check_whole(sql)
        assert counts() in ({before: MESSAGES}, after), (call, n)
        assert status != 0 or counts() == after, (call, n)
        assert sql('SELECT max(seq) FROM postroom_outbox')[0][0] in (None, *sql(
            "SELECT seq FROM sqlite_sequence WHERE name = 'postroom_outbox'")[0])
        if counts() != after:
            postroom.ok(*command)
        assert counts() == after
        return hit

    every(call, operate)


def one_clear_line(errors):
    lines = [line for line in errors.splitlines() if line.startswith('postroom: ')]
    assert len(lines) == 1 and len(errors.splitlines()) == 1, errors


@pytest.mark.parametrize('error', ['ENOSPC', 'EIO'])
@pytest.mark.parametrize('call', ['pwrite64', 'fdatasync', 'ftruncate'])
def E5_enqueue_reports_every_failed_call_and_loses_nothing(postroom, sql, fresh, call, error):
    def clear(status, errors, there, n):
        if status == 0:
            return
        assert status == 1, (call, n, errors)
        one_clear_line(errors)
        # Only a failed sync may leave it open whether the message is there.
        assert there == 0 or call == 'fdatasync', (call, n, errors)

    every(call, lambda n: enqueue_survives(postroom, sql, fresh, call, f'error={error}', n, clear))


def sink(tmp_path):
    found = []
    if (tmp_path / 'out').exists():
        for line in (tmp_path / 'out').read_bytes().split(b'\n'):
            try:
                found.append(json.loads(line)['payload']['n'])
            except (ValueError, KeyError, TypeError):
                assert not line.endswith(b'}'), line
    return found


DRAIN = ['relay', '--drain', '--workers', '1', '--to', 'file:out', '--log-level', 'off',
         '--base-delay', '1ms']


def drain_survives(postroom, sql, fresh, tmp_path, call, action, n, clear):
    """One drain with a fault in it, then one without: all delivered, none marked so that was not."""
    fresh()
    status, errors, hit = traced(postroom, call, action, n, *DRAIN)
    check_whole(sql)
    rows = {json.loads(payload)['n']: state for payload, state in sql(
        'SELECT payload, status FROM postroom_outbox')}
    assert sorted(rows) == list(range(MESSAGES))
    written = sink(tmp_path)
    assert {n for n, state in rows.items() if state == 'delivered'} <= set(written), (call, n)
    assert set(rows.values()) <= {'pending', 'processing', 'delivered'}, (call, n, rows)
    if status == 0:
        assert set(rows.values()) == {'delivered'}
    clear(status, errors, written, n)
    sql("UPDATE postroom_outbox SET locked_until = 1 WHERE status = 'processing'")
    postroom.ok(*DRAIN)
    assert sql('SELECT DISTINCT status FROM postroom_outbox') == [('delivered',)]
    assert set(sink(tmp_path)) == set(range(MESSAGES))
    assert max(sink(tmp_path).count(n) for n in range(MESSAGES)) <= 2
    return hit


@pytest.mark.parametrize('call', CALLS)
def A1_relay_killed_at_any_call_loses_nothing(postroom, sql, fresh, tmp_path, call):
    def clear(status, errors, written, n):
        assert status in (0, -9, 137), (call, n, errors)
        assert len(written) == len(set(written)), (call, n, written)

    every(call, lambda n: drain_survives(postroom, sql, fresh, tmp_path, call, 'signal=KILL', n,
                                         clear))


@pytest.mark.parametrize('error', ['ENOSPC', 'EIO'])
@pytest.mark.parametrize('call', ['pwrite64', 'fdatasync', 'ftruncate', 'write'])
def D5_relay_recovers_from_any_single_failed_call(postroom, sql, fresh, tmp_path, call, error):
    def clear(status, errors, written, n):
        if status == 0 and call == 'pwrite64':
            # The database failed, the sink did not: what was published is settled, not sent again.
            assert sorted(written) == list(range(MESSAGES)), (call, n, written)
        if status != 0:
            assert status == 1, (call, n, errors)
            one_clear_line(errors)

    every(call, lambda n: drain_survives(postroom, sql, fresh, tmp_path, call, f'error={error}', n,
                                         clear))
