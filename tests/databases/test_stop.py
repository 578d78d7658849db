# SPDX-License-Identifier: Apache-2.0
"""Stopping a relay, and suspending it past its lease: what it leaves behind, and what it does not do."""
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import wait_for_signal, wait_until
from sink_files import messages_in, words_in

pytestmark = pytest.mark.parametrize('kind', ['sqlite', 'pgsql'])

LIVE = {'sqlite': 'locked_until > (unixepoch() + 1) * 1000000', 'pgsql': 'locked_until > clock_timestamp()'}
LONG_AGO = {'sqlite': '0', 'pgsql': "'2000-01-01'"}


def enqueue(postroom, count):
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"t","payload":{}}\n' * count)


def expire_leases(sql, kind):
    sql(f"UPDATE postroom_outbox SET locked_until = {LONG_AGO[kind]} WHERE status = 'processing'")


def processing(sql, condition='true'):
    return sql(f"SELECT count(*) FROM postroom_outbox WHERE status = 'processing' AND {condition}")[0][0]


def delivered(sql):
    return {id for id, in sql("SELECT CAST(id AS text) FROM postroom_outbox WHERE status = 'delivered'")}


def check_released(sql):
    """No lease is left, and a message that was not tried has its attempt back."""
    assert processing(sql) == 0
    assert sql('SELECT count(*) FROM postroom_outbox WHERE locked_by IS NOT NULL OR locked_until IS NOT NULL') == [(0,)]
    assert sql("SELECT DISTINCT attempts FROM postroom_outbox WHERE status = 'pending'") in ([], [(0,)])


def wait_for_lost_leases(relay, count):
    """The rest of the log after so many messages whose lease was lost, when the relay has stopped."""
    log = b''
    while log.count(b'OUTBOX_WORKER_SKIP_PROCESSED id=') < count:
        line = relay.stderr.readline()
        assert line, log
        log += line
    relay.terminate()
    log += relay.stderr.read()
    assert relay.wait() == 0
    return log


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def D4_relay_stopped_under_load_settles_published_messages(postroom, sql, number):
    enqueue(postroom, 20000)
    relay = postroom.start('relay', '--to', 'stdout:', '--batch-size', '50', stderr=subprocess.DEVNULL)
    # A pipe holds few of them: the relay cannot deliver all before the signal, however late that comes.
    lines = [relay.stdout.readline() for _ in range(100)]
    relay.send_signal(number)
    lines += relay.communicate()[0].splitlines()
    assert relay.returncode == 0
    published = [json.loads(line)['id'] for line in lines]
    assert len(published) == len(set(published)) < 20000
    assert delivered(sql) == set(published)
    assert sql("SELECT count(*) FROM postroom_outbox WHERE status = 'pending'") == [(20000 - len(published),)]
    check_released(sql)


def D4_stop_finishes_begun_messages_and_releases_the_rest(postroom, sql, tmp_path):
    enqueue(postroom, 40)
    os.mkfifo(tmp_path / 'gate')
    relay = postroom.start('relay', '--workers', '1', '--lease', '1h', '--shutdown-grace', '20m', '--publish-timeout', '20m', '--to',
                           'exec:echo $POSTROOM_ID >> begun; read word < gate; echo $POSTROOM_ID >> done',
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: words_in(tmp_path / 'begun'), 'the first to begin')
    relay.terminate()
    wait_for_signal(relay.pid)
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    # Opens the gate for every command that waits there, until the relay has ended.
    while relay.poll() is None:
        os.write(gate, b'go\n')
        time.sleep(0.01)
    os.close(gate)
    assert relay.returncode == 0
    begun, done = words_in(tmp_path / 'begun'), words_in(tmp_path / 'done')
    assert sorted(begun) == sorted(done) and 0 < len(done) < 40
    assert delivered(sql) == set(done)
    check_released(sql)


def A2_relay_suspended_past_its_lease_settles_nothing_of_others(postroom, sql, tmp_path, kind):
    """Stopped in the middle of a publish, and continued when another relay has done its work."""
    enqueue(postroom, 3)
    os.mkfifo(tmp_path / 'gate')
    suspended = postroom.start('relay', '--workers', '1', '--lease', '1h', '--publish-timeout', '20m',
                               '--to', 'exec:echo $POSTROOM_ID >> begun; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'the first relay to publish')
    suspended.send_signal(signal.SIGSTOP)
    expire_leases(sql, kind)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    assert len(messages_in(tmp_path / 'out')) == 3
    before = sql('SELECT * FROM postroom_outbox ORDER BY seq')
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 3)
    suspended.send_signal(signal.SIGCONT)
    log = wait_for_lost_leases(suspended, 3)
    os.close(gate)
    assert b'DISPATCH_SUCCESS' not in log and b'DISPATCH_FAIL' not in log
    assert sql('SELECT * FROM postroom_outbox ORDER BY seq') == before
    assert sql('SELECT DISTINCT status, attempts FROM postroom_outbox') == [('delivered', 2)]


def A7_relay_suspended_past_its_lease_publishes_no_more_of_batch(postroom, sql, tmp_path, kind):
    enqueue(postroom, 200)
    os.mkfifo(tmp_path / 'gate')
    # The commands outlast a slow moment of this test; else some have failed before the relay is stopped.
    suspended = postroom.start('relay', '--workers', '1', '--lease', '16s', '--to',
                               'exec:echo $POSTROOM_ID >> begun; read word < gate')
    # All that go at once: one that is being started when the relay is stopped begins afterwards.
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 8, 'the first relay to publish')
    suspended.send_signal(signal.SIGSTOP)
    wait_until(lambda: processing(sql, LIVE[kind]) == 0, 'the leases to expire')
    claimed = processing(sql)
    expire_leases(sql, kind)
    postroom.ok('relay', '--drain', '--to', 'null:')
    begun = words_in(tmp_path / 'begun')
    assert claimed == 200 and len(begun) < 200
    suspended.send_signal(signal.SIGCONT)
    wait_for_lost_leases(suspended, 1)
    assert words_in(tmp_path / 'begun') == begun
