# SPDX-License-Identifier: Apache-2.0
"""What a relay survives: messages that kill it, publishes longer than a lease, clocks that jump. Relays
that were suspended past their lease are in test_order.py and test_stop.py."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import wait_until
from fake_clock import clock
from sink_files import words_in

# The command's parent is its guard, and the relay the guard's.
KILL_THE_RELAY = 'kill -9 $(sed -n "s/^PPid:.//p" /proc/$PPID/status); sleep 1000'


def enqueue(postroom, count, topic='good', env=None):
    postroom.ok('enqueue', '--ndjson', '-', env=env,
                input='{"topic":"%s","payload":{}}\n' % topic * count)


def expire_leases(sql, kind):
    """Instead of waiting for them."""
    if kind == 'sqlite':
        sql("UPDATE postroom_outbox SET locked_until = 1 WHERE status = 'processing'")
        return
    sql("UPDATE postroom_outbox SET locked_until = clock_timestamp() WHERE status = 'processing'")
    sql('UPDATE postroom_lanes SET locked_until = clock_timestamp() WHERE locked_by IS NOT NULL')


def C5_message_that_crashes_relay_is_dead_lettered_alone(postroom, sql, kind):
    """Restarted whenever it was killed, the relay ends up with all delivered but the one."""
    out = pathlib.Path(postroom.cwd, 'out')
    enqueue(postroom, 10)
    killer = postroom.enqueue('killer')
    enqueue(postroom, 10)
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        # A command has half of the lease to kill the relay in; else it has failed, and kills no relay.
        relay = postroom.start(
            'relay', '--drain', '--workers', '1', '--lease', '4m', '--max-attempts', '3', '--log-level',
            'warn', '--to', f'exec:if [ "$POSTROOM_TOPIC" = killer ]; then {KILL_THE_RELAY}; fi;'
            ' echo $POSTROOM_ID >> out', stderr=subprocess.DEVNULL)
        codes.append(relay.wait())
        assert len(codes) <= 10
        expire_leases(sql, kind)
    assert codes == [-signal.SIGKILL] * 3 + [0], (codes, postroom.rows())
    rows = {row['id']: row for row in postroom.rows()}
    dead = rows.pop(killer)
    assert (dead['status'], dead['attempts']) == ('dead', 3)
    assert {row['status'] for row in rows.values()} == {'delivered'}
    # They lost the attempt of the batch that it was in, and no other.
    assert {row['attempts'] for row in rows.values()} <= {1, 2}
    assert set(words_in(out)) == set(rows)


def A5_batch_longer_than_its_lease_renews_it(postroom):
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
    # Nor was anything released meanwhile and claimed again.
    assert sum(map(int, re.findall(r'OUTBOX_WORKER_FETCH count=(\d+)', (cwd / 'log').read_text()))) == 24
    assert {(row['status'], row['attempts']) for row in postroom.rows()} == {('delivered', 1)}


@pytest.mark.parametrize('jump', ['+3600', '-3600'])
def C3_clock_jump_of_one_hour_loses_and_repeats_nothing(postroom, kind, jump):
    """By an hour and back, with a message in flight and another that waits for its next attempt."""
    # On SQLite the clock is the process's own, so a jump makes the next attempt due, once. A server's
    # clock does not jump with the relay's.
    attempts = 2 if kind == 'sqlite' and jump == '+3600' else 1
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
