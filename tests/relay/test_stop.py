# SPDX-License-Identifier: Apache-2.0
"""Handlers of a relay that stops or is killed. databases/test_stop.py has the messages."""
import os
import signal
import sqlite3
import subprocess
import time
import uuid

import pytest

from conftest import PATIENCE, wait_for_signal, wait_until
from relay_process import (children_of, enqueue_many, expire_leases, ids_in, lines_of, processes_with)


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
    assert sql('SELECT status, attempts, locked_by, locked_until, last_error FROM postroom_outbox') == [
        ('pending', 0, None, None, 'stopped')]
    assert b'UNREACHABLE' not in log


def D4_second_signal_ends_relay_and_its_children_immediately(postroom, sql, tmp_path):
    word = uuid.uuid4().hex
    id = postroom.enqueue()
    relay = postroom.start('relay', '--shutdown-grace', '20m', '--lease', '1h', '--publish-timeout', '20m', '--to',
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
