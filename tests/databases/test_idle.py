# SPDX-License-Identifier: Apache-2.0
"""A relay with nothing to do (D3)."""
import os
import pathlib
import struct
import time

import pytest

from conftest import PROGRAM, sanitized, wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
COUNTER = pathlib.Path(PROGRAM).resolve().parent / 'bench' / 'libcount_statements.so'
POLL_S = 1 if SOAK else 0.1
INTERVALS = 15 if SOAK else 20
# It would look by itself only after hours.
SLEEPY = ['--poll-interval', '8h', '--lease', '24h', '--log-level', 'warn']


def begun(postroom):
    """The ids of the messages whose delivery has begun, in that order."""
    path = pathlib.Path(postroom.cwd, 'begun')
    return path.read_text().split() if path.exists() else []


def begin_at_a_gate(postroom, workers):
    """A relay whose every message waits at a gate."""
    os.mkfifo(pathlib.Path(postroom.cwd, 'gate'))
    return postroom.start('relay', '--to',
                          'exec:echo $POSTROOM_ID >> begun; read word < gate; true', '--batch-size',
                          '1', '--workers', workers, '--publish-timeout', '1h', *SLEEPY)


def counts(path):
    """Statements of the workers, their transactions, statements of the janitor."""
    data = path.read_bytes() if path.exists() else b''
    return struct.unpack('qqq', data or bytes(24))  # it is made empty


@pytest.mark.parametrize('workers', [2, 8])
def D3_idle_relay_runs_one_statement_per_poll_interval(postroom, workers):
    """However late a look comes, there are never more of them than intervals have begun."""
    if not COUNTER.exists() or sanitized():
        pytest.skip('statements cannot be counted here')
    path = pathlib.Path(postroom.cwd, 'counts')
    relay = postroom.start('relay', '--to', 'null:', '--poll-interval', f'{POLL_S * 1000:.0f}ms',
                           '--workers', workers,
                           env={'LD_PRELOAD': str(COUNTER), 'COUNT_STATEMENTS': str(path)})
    wait_until(lambda: counts(path)[0] > 0, 'the first statement')

    def settled():
        begun = time.monotonic()
        before, _, swept = counts(path)
        wait_until(lambda: counts(path)[0] >= before + INTERVALS, 'more looks')
        looks, janitor = counts(path)[0] - before, counts(path)[2] - swept
        intervals = (time.monotonic() - begun) / POLL_S
        print(f'{looks} statements in {intervals:.1f} intervals, {janitor} of the janitor')
        return looks <= intervals + 1
    # Its rests grow to the whole interval first.
    wait_until(settled, 'a statement an interval')
    assert relay.poll() is None


def D3_commit_does_not_wait_for_a_slow_sink(postroom):
    """Each message finds all earlier ones at the gate, and one worker that holds the watch token."""
    workers = 3
    relay = begin_at_a_gate(postroom, workers)
    ids = []
    for n in range(workers):
        ids.append(postroom.enqueue())
        wait_until(lambda: len(begun(postroom)) == n + 1, f'message {n + 1} to begin')
    assert begun(postroom) == ids
    relay.kill()
    relay.wait()


def D3_large_backlog_wakes_all_workers(postroom):
    """Many messages in one commit find all asleep."""
    workers = 4
    relay = begin_at_a_gate(postroom, workers)
    gate = os.open(pathlib.Path(postroom.cwd, 'gate'), os.O_RDWR)
    postroom.enqueue()
    wait_until(lambda: len(begun(postroom)) == 1, 'the relay to work')
    os.write(gate, b'go\n')
    wait_until(lambda: postroom.ok('stats', '--json').object['delivered'] == 1, 'the relay to rest')
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic": "t", "payload": 1}\n' * workers * 2)
    wait_until(lambda: len(begun(postroom)) == 1 + workers, 'all workers to have one')
    relay.kill()
    relay.wait()
    os.close(gate)
