# SPDX-License-Identifier: Apache-2.0
"""Stopping, being stopped, being killed: what is left behind, and what is not."""
import os
import signal
import sqlite3
import subprocess
import time
import uuid

import pytest

from conftest import PATIENCE, wait_for_signal, wait_until
from relay_process import (children_of, enqueue_many, expire_leases, ids_in, lines_of, processes_with)


def counts(sql):
    return dict(sql('SELECT status, count(*) FROM postroom_outbox GROUP BY status'))


def check_given_back(sql):
    """No lease is left, and what was not tried has its attempt back."""
    assert sql("SELECT count(*) FROM postroom_outbox WHERE locked_by IS NOT NULL"
               " OR locked_until IS NOT NULL OR status = 'processing'") == [(0,)]
    assert sql("SELECT DISTINCT attempts FROM postroom_outbox WHERE status = 'pending'") in (
        [], [(0,)])


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def D4_relay_stopped_under_load_settles_published_messages(postroom, sql, tmp_path, number):
    enqueue_many(postroom, 20000)
    relay = postroom.start('relay', '--to', 'file:out', '--batch-size', '50', stderr=subprocess.DEVNULL)
    wait_until(lambda: len(lines_of(tmp_path / 'out')) > 100, 'the first messages')
    relay.send_signal(number)
    assert relay.wait() == 0
    published = [message['id'] for message in lines_of(tmp_path / 'out')]
    assert len(published) == len(set(published))
    assert {id for id, in sql("SELECT id FROM postroom_outbox WHERE status = 'delivered'")} == set(
        published)
    assert counts(sql).get('pending', 0) == 20000 - len(published) > 0
    check_given_back(sql)


def D4_stop_finishes_begun_messages_and_releases_the_rest(postroom, sql, tmp_path):
    for _ in range(40):
        postroom.enqueue()
    os.mkfifo(tmp_path / 'gate')
    relay = postroom.start('relay', '--workers', '1', '--lease', '60s', '--to',
                           'exec:echo $POSTROOM_ID >> begun; read word < gate; '
                           'echo $POSTROOM_ID >> done', stderr=subprocess.DEVNULL)
    wait_until(lambda: ids_in(tmp_path / 'begun'), 'the first to begin')
    relay.terminate()
    wait_for_signal(relay.pid)
    # Opens the gate for every command that waits there, until the relay has ended.
    while relay.poll() is None:
        try:
            gate = os.open(tmp_path / 'gate', os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
            continue
        try:
            os.write(gate, b'go\n')
        except BrokenPipeError:
            pass
        os.close(gate)
    assert relay.returncode == 0
    begun, done = ids_in(tmp_path / 'begun'), ids_in(tmp_path / 'done')
    assert sorted(begun) == sorted(done) and 0 < len(done) < 40
    assert {id for id, in sql("SELECT id FROM postroom_outbox WHERE status = 'delivered'")} == set(
        done)
    check_given_back(sql)


def D4_handler_past_the_grace_is_ended_and_abandoned(postroom, sql, tmp_path):
    word = uuid.uuid4().hex
    postroom.enqueue()
    relay = postroom.start('relay', '--shutdown-grace', '300ms', '--max-attempts', '1', '--to',
                           f'exec:echo x >> begun; sleep 1000; : {word}', stderr=subprocess.PIPE)
    wait_until(lambda: ids_in(tmp_path / 'begun'), 'the command to begin')
    relay.terminate()
    log = relay.stderr.read()
    assert relay.wait() == 0
    wait_until(lambda: not processes_with(word), 'the command to be ended')
    # Nothing was wrong with it, nor with the sink.
    assert counts(sql) == {'pending': 1}
    assert sql('SELECT last_error FROM postroom_outbox') == [('stopped',)]
    assert b'UNREACHABLE' not in log
    check_given_back(sql)


def D4_second_signal_ends_relay_and_its_children_immediately(postroom, sql, tmp_path):
    word = uuid.uuid4().hex
    id = postroom.enqueue()
    relay = postroom.start('relay', '--shutdown-grace', '1000s', '--publish-timeout', '15s', '--to',
                           f'exec:echo x >> begun; sleep 1000; : {word}', stderr=subprocess.DEVNULL)
    wait_until(lambda: ids_in(tmp_path / 'begun'), 'the command to begin')
    relay.terminate()
    # Two signals that arrive together would be one: the first must have been taken.
    wait_until(lambda: not pending(relay.pid), 'the first signal to be taken')
    relay.terminate()
    relay.wait()
    wait_until(lambda: not processes_with(word), 'the command to be ended')
    expire_leases(sql)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    message, = lines_of(tmp_path / 'out')
    assert message['id'] == id


def pending(pid):
    """Whether a signal waits to be taken by the process."""
    with open(f'/proc/{pid}/status', encoding='ascii') as status:
        fields = dict(line.split(':\t', 1) for line in status if ':\t' in line)
    return int(fields['ShdPnd'], 16) or int(fields['SigPnd'], 16)


def K3_a_killed_relay_leaves_no_child_behind(postroom, tmp_path):
    word = uuid.uuid4().hex
    for _ in range(5):
        postroom.enqueue()
    relay = postroom.start('relay', '--to', f'exec:echo x >> begun; sleep 1000 & wait; : {word}',
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: len(ids_in(tmp_path / 'begun')) == 5, 'all commands to begin')
    assert processes_with(word)
    relay.kill()
    relay.wait()
    wait_until(lambda: not processes_with(word), 'the children to be gone')


def K3_children_are_always_reaped(postroom, tmp_path):
    enqueue_many(postroom, 60)
    relay = postroom.start('relay', '--to', 'exec:echo x >> done; exit $(( $$ % 3 ))', '--base-delay',
                           '10ms', stderr=subprocess.DEVNULL)
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be settled')
    wait_until(lambda: not children_of(relay.pid), 'the last to be reaped')
    relay.terminate()
    assert relay.wait() == 0


def A2_relay_suspended_past_its_lease_settles_nothing_of_others(postroom, sql, tmp_path):
    """Stopped in the middle of a publish, and woken when another relay has done its work."""
    for _ in range(3):
        postroom.enqueue()
    os.mkfifo(tmp_path / 'gate')
    sleeper = postroom.start('relay', '--workers', '1', '--lease', '60s', '--publish-timeout', '20s',
                             '--to', 'exec:echo $POSTROOM_ID >> begun; read word < gate')
    wait_until(lambda: len(ids_in(tmp_path / 'begun')) == 3, 'the first relay to publish')
    sleeper.send_signal(signal.SIGSTOP)
    expire_leases(sql)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    assert len(lines_of(tmp_path / 'out')) == 3
    before = sql('SELECT * FROM postroom_outbox ORDER BY seq')
    gate = os.open(tmp_path / 'gate', os.O_WRONLY)
    os.write(gate, b'go\n' * 3)
    os.close(gate)
    sleeper.send_signal(signal.SIGCONT)
    log = b''
    while log.count(b'OUTBOX_WORKER_SKIP_PROCESSED id=') < 3:
        line = sleeper.stderr.readline()
        assert line, log
        log += line
    sleeper.terminate()
    rest = sleeper.stderr.read()
    assert sleeper.wait() == 0
    assert b'DISPATCH_SUCCESS' not in log + rest and b'DISPATCH_FAIL' not in log + rest
    assert sql('SELECT * FROM postroom_outbox ORDER BY seq') == before
    assert {row[0] for row in sql('SELECT status || attempts FROM postroom_outbox')} == {'delivered2'}


def A7_relay_suspended_past_its_lease_publishes_no_more_of_batch(postroom, sql,
                                                                             tmp_path):
    enqueue_many(postroom, 200)
    os.mkfifo(tmp_path / 'gate')
    # The commands outlast a slow moment of this test; else some have failed before the relay is stopped.
    sleeper = postroom.start('relay', '--workers', '1', '--lease', '16s', '--to',
                             'exec:echo $POSTROOM_ID >> begun; read word < gate')
    # All that go at once: one that is being started when the relay is stopped begins afterwards.
    wait_until(lambda: len(ids_in(tmp_path / 'begun')) == 8, 'the first relay to publish')
    sleeper.send_signal(signal.SIGSTOP)
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'"
                           " AND locked_until > (unixepoch() + 1) * 1000000") == [(0,)],
               'the leases to expire')
    claimed = sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'")[0][0]
    expire_leases(sql)
    postroom.ok('relay', '--drain', '--to', 'null:')
    begun = ids_in(tmp_path / 'begun')
    assert claimed == 200 and len(begun) < 200
    sleeper.send_signal(signal.SIGCONT)
    while b'OUTBOX_WORKER_SKIP_PROCESSED' not in (line := sleeper.stderr.readline()):
        assert line
    sleeper.terminate()
    sleeper.stderr.read()
    assert sleeper.wait() == 0
    assert ids_in(tmp_path / 'begun') == begun


def busy_waits(pid):
    """How often the threads of a process have gone to sleep."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status', encoding='ascii') as status:
            total += sum(int(line.split()[1]) for line in status
                         if line.startswith('voluntary_ctxt_switches'))
    return total


def D5_relay_survives_a_locked_database(postroom, db, tmp_path):
    id = postroom.enqueue()
    relay = postroom.start('relay', '--to', 'file:out', stderr=subprocess.DEVNULL)
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the first message')
    holder = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
    holder.execute('BEGIN IMMEDIATE')
    holder.execute("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    for _ in range(2):
        slept = busy_waits(relay.pid)
        wait_until(lambda: busy_waits(relay.pid) > slept + 20, 'the relay to retry repeatedly')
        assert relay.poll() is None and len(lines_of(tmp_path / 'out')) == 1
    holder.execute('COMMIT')
    holder.close()
    wait_until(lambda: len(lines_of(tmp_path / 'out')) == 2, 'the second message')
    relay.terminate()
    assert relay.wait() == 0
    assert [message['attempt'] for message in lines_of(tmp_path / 'out')] == [1, 1]
    assert postroom.show(id)['status'] == 'delivered'
