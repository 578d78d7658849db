# SPDX-License-Identifier: Apache-2.0
"""What a relay outlasts, on every database and kind of lease: messages that kill it, publishes that
take longer than a lease, and clocks that jump."""
import glob
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import sanitized, wait_until

# The command's parent is its guard, and the relay the guard's.
KILL_THE_RELAY = 'kill -9 $(sed -n "s/^PPid:.//p" /proc/$PPID/status); sleep 60'


def words_in(path):
    return path.read_text().split() if path.exists() else []


def enqueue(postroom, count, topic='good', env=None):
    postroom.ok('enqueue', '--ndjson', '-', env=env,
                input='{"topic":"%s","payload":{}}\n' % topic * count)


def check_poison_message_is_dead_lettered_alone(postroom):
    """Restarted whenever it was killed, the relay ends up with all delivered but the one."""
    out = pathlib.Path(postroom.cwd, 'out')
    enqueue(postroom, 10)
    killer = postroom.enqueue('killer')
    enqueue(postroom, 10)
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        # A command has half of the lease to kill the relay in; else it has failed, and kills no relay.
        relay = postroom.start(
            'relay', '--drain', '--workers', '1', '--lease', '10s', '--max-attempts', '3', '--log-level',
            'warn', '--to', f'exec:if [ "$POSTROOM_TOPIC" = killer ]; then {KILL_THE_RELAY}; fi;'
            ' echo $POSTROOM_ID >> out', stderr=subprocess.DEVNULL)
        codes.append(relay.wait())
        assert len(codes) <= 10
    assert codes == [-signal.SIGKILL] * 3 + [0], (codes, postroom.rows())
    rows = {row['id']: row for row in postroom.rows()}
    dead = rows.pop(killer)
    assert (dead['status'], dead['attempts']) == ('dead', 3)
    assert {row['status'] for row in rows.values()} == {'delivered'}
    # They lost the attempt of the batch that it was in, and no other.
    assert {row['attempts'] for row in rows.values()} <= {1, 2}
    assert set(words_in(out)) == set(rows)


def a_long_batch_keeps_its_lease(postroom):
    """One batch takes longer than a lease; another relay looks on and gets nothing of it."""
    cwd = pathlib.Path(postroom.cwd)
    enqueue(postroom, 24)
    with open(cwd / 'log', 'wb') as log:
        first = postroom.start('relay', '--workers', '1', '--lease', '10s', '--publish-timeout', '5s',
                               '--concurrency', '1', '--to',
                               'exec:sleep 0.5; echo $POSTROOM_ID >> out', stderr=log)
    wait_until(lambda: words_in(cwd / 'out'), 'the first to publish')
    second = postroom.start('relay', '--to', 'exec:echo $POSTROOM_ID >> stolen', stderr=subprocess.DEVNULL)
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    for relay in (first, second):
        relay.terminate()
        assert relay.wait() == 0
    ids = words_in(cwd / 'out')
    assert len(ids) == len(set(ids)) == 24 and not words_in(cwd / 'stolen')
    # Nor was anything given back on the way and claimed again.
    assert sum(map(int, re.findall(r'OUTBOX_WORKER_FETCH count=(\d+)', (cwd / 'log').read_text()))) == 24
    assert {(row['status'], row['attempts']) for row in postroom.rows()} == {('delivered', 1)}


def clock(postroom):
    """An environment whose time of day is set by a file, and what sets it."""
    found = glob.glob('/usr/lib/*/faketime/libfaketimeMT.so.1')
    if not found:
        pytest.skip('there is no libfaketime')
    if sanitized():
        pytest.skip('a sanitizer wants to be the first library of a program')
    path = pathlib.Path(postroom.cwd, 'clock')

    def put(offset):
        # In one step: the relay may read it at any time.
        new = path.with_suffix('.new')
        new.write_text(f'{offset}\n')
        os.rename(new, path)

    put('+0')
    return {'LD_PRELOAD': found[0], 'FAKETIME_TIMESTAMP_FILE': str(path), 'FAKETIME_NO_CACHE': '1',
            'FAKETIME_DONT_FAKE_MONOTONIC': '1', 'DONT_FAKE_MONOTONIC': '1'}, put


def a_clock_jumps(postroom, jump, attempts):
    """By an hour and back, with a message in flight and another that waits for its next attempt."""
    cwd = pathlib.Path(postroom.cwd)
    env, put = clock(postroom)
    os.mkfifo(cwd / 'gate')
    bad = postroom.enqueue('bad', env=env)
    relay = postroom.start(
        'relay', '--workers', '1', '--lease', '30s', '--backoff', 'constant', '--base-delay', '20m',
        '--max-delay', '20m', '--poll-interval', '50ms', '--to',
        'exec:date +%s >> times; echo $POSTROOM_ID >> begun; case $POSTROOM_TOPIC in'
        ' (bad) exit 1;; (gated) read word < gate;; esac; echo $POSTROOM_ID >> out',
        env=env, stderr=subprocess.DEVNULL)
    wait_until(lambda: postroom.show(bad)['last_error'], 'the failure')
    for offset in (jump, '+0'):
        gated = postroom.enqueue('gated', env=env)
        wait_until(lambda: gated in words_in(cwd / 'begun'), 'it to begin')
        put(offset)
        (cwd / 'gate').write_text('go\n')
        enqueue(postroom, 20, env=env)
        wait_until(lambda: len(words_in(cwd / 'out')) >= (21 if offset == jump else 42),
                   'what came after the jump')
        wait_until(lambda: words_in(cwd / 'begun').count(bad) >= attempts, 'what the jump made due')
    wait_until(lambda: postroom.stats()['delivered'] == 42, 'all to be settled')
    relay.terminate()
    assert relay.wait() == 0
    ids = words_in(cwd / 'out')
    assert len(ids) == len(set(ids)) == 42
    row = postroom.show(bad)
    assert (row['status'], row['attempts']) == ('pending', attempts)
    assert words_in(cwd / 'begun').count(bad) == attempts
    times = list(map(int, words_in(cwd / 'times')))
    assert max(times) - min(times) >= 3600, 'the clock did jump'
