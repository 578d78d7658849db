# SPDX-License-Identifier: Apache-2.0
"""Waking a sleeping relay, on SQLite (D3): the trace of its system calls shows what ended a sleep."""
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import PATIENCE, PROGRAM, needs_strace, wait_until
from relay_process import children_of, lines_of


pytestmark = needs_strace

# A relay that sleeps this long has been idle for as long.
LONG_MS = 2000
SLEEP = re.compile(r'^(\d+) +([\d.]+) poll\(\[.*\], 2, (\d+)(.*)$', re.M)


@pytest.fixture
def traced(postroom, tmp_path):
    """traced(CALLS, …) runs the program under strace; the trace goes to the file `trace`, with the time of each call."""
    def start(calls, *args, inject=()):
        env = postroom.environment({'ASAN_OPTIONS': 'detect_leaks=0'})
        options = [word for what in inject for word in ('-e', f'inject={what}')]
        process = subprocess.Popen(
            ['strace', '-f', '-ttt', '-qq', '-o', tmp_path / 'trace', '-e', f'trace={calls}', *options, PROGRAM,
             *args], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(tmp_path / 'log', 'wb'))
        postroom.processes.append(process)
        return process
    return start


def trace_of(tmp_path):
    return (tmp_path / 'trace').read_text(errors='replace') if (tmp_path / 'trace').exists() else ''


def long_sleeps(tmp_path):
    return [sleep for sleep in SLEEP.finditer(trace_of(tmp_path)) if int(sleep[3]) >= LONG_MS]


def stop(process, tmp_path):
    """strace hands no signals on: its child gets them itself."""
    for child in children_of(process.pid):
        os.kill(child, signal.SIGTERM)
    assert process.wait() == 0, (tmp_path / 'log').read_text()


def sleepy(*args):
    return ['relay', '--to', 'file:out', '--workers', '1', '--poll-interval', '8h', '--lease', '24h', *args]


def ended_by_notification(tmp_path, sleep):
    """Whether this call of poll() came back because a descriptor was ready."""
    after = trace_of(tmp_path)[sleep.start():]
    lines = [line for line in after.splitlines() if line.startswith(sleep[1] + ' ')]
    ended = lines[0] if '<unfinished' not in lines[0] else lines[1]
    assert 'poll' in ended, lines[:3]
    return ' = 1 ([{fd=' in ended


def D3_commit_from_another_language_wakes_the_relay(postroom, traced, db, tmp_path):
    postroom.ok('migrate')
    relay = traced('poll', *sleepy())
    connection = sqlite3.connect(db, timeout=PATIENCE)

    def commits_during(sleep):
        """False if the commit was too late: the sleep was over by then."""
        count = len(lines_of(tmp_path / 'out'))
        with connection:
            connection.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
        committed = time.time()
        wait_until(lambda: len(lines_of(tmp_path / 'out')) > count, 'the message')
        return committed < float(sleep[2]) + int(sleep[3]) / 1000

    def last_sleep(known):
        sleeps = wait_until(lambda: len(found := long_sleeps(tmp_path)) > known and found, 'a long sleep')
        return sleeps[-1], len(sleeps)
    sleep, known = last_sleep(0)
    while not commits_during(sleep):
        sleep, known = last_sleep(known)
    assert ended_by_notification(tmp_path, sleep), 'it slept till its time'
    connection.close()
    stop(relay, tmp_path)


def D3_without_inotify_relay_logs_once_and_polls(postroom, traced, tmp_path):
    relay = traced('inotify_init1', 'relay', '--to', 'file:out', '--workers', '2', '--poll-interval',
                   '50ms', inject=['inotify_init1:error=EMFILE'])
    wait_until(lambda: 'OUTBOX_STORE_POLLING' in (tmp_path / 'log').read_text(), 'the line')
    postroom.enqueue()
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the message')
    # By now both workers have tried more than once.
    wait_until(lambda: trace_of(tmp_path).count('(INJECTED)') > 10, 'more sleeps')
    stop(relay, tmp_path)
    line, = [line for line in (tmp_path / 'log').read_text().splitlines() if 'POLLING' in line]
    assert 'for commits: Too many open files' in line and 'level=warn' in line


def D3_idle_relay_polls_once_per_sleep(postroom, traced, tmp_path):
    """Without writes only the time ends a sleep: the relay's own polls and sweeps do not wake it."""
    postroom.ok('migrate')
    relay = traced('poll,inotify_init1', *sleepy())
    wait_until(lambda: long_sleeps(tmp_path), 'a long sleep')
    stop(relay, tmp_path)
    started = trace_of(tmp_path)
    started = started[started.index('inotify_init1'):]
    sleeps = [int(sleep[3]) for sleep in SLEEP.finditer(started)]
    # Each is twice as long as the one before it, but for the rounding.
    assert len(sleeps) < 12 and sleeps == sorted(sleeps), sleeps
