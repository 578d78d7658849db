# SPDX-License-Identifier: Apache-2.0
"""Stopping, and sleeping past a lease: what is left behind, and what is not."""
import os
import signal
import time

import pytest

from conftest import wait_for_signal, wait_until
from pgsql.files import messages_in, words_in


def check_given_back(sql):
    """No lease is left, and what was not tried has its attempt back."""
    assert sql("SELECT count(*) FROM postroom_outbox WHERE locked_by IS NOT NULL "
               "OR locked_until IS NOT NULL OR status = 'processing'") == [(0,)]
    assert sql("SELECT DISTINCT attempts FROM postroom_outbox WHERE status = 'pending'") in (
        [], [(0,)])


def expire_leases(sql):
    """Instead of waiting for them."""
    sql("UPDATE postroom_outbox SET locked_until = '2000-01-01' WHERE status = 'processing'")


def fill(sql, count):
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', to_jsonb(n) "
        'FROM generate_series(1, %s) n', count)


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def D4_relay_stopped_under_load_settles_published_messages(postroom, relay, sql, tmp_path, number):
    fill(sql, 20000)
    running = relay('--to', 'file:out', '--batch-size', '50', '--log-level', 'warn')
    wait_until(lambda: len(messages_in(tmp_path / 'out')) > 100, 'the first messages')
    running.process.send_signal(number)
    assert running.process.wait() == 0
    published = [message['id'] for message in messages_in(tmp_path / 'out')]
    assert len(published) == len(set(published)) < 20000
    assert {id for id, in sql("SELECT id::text FROM postroom_outbox WHERE status = 'delivered'")} == set(
        published)
    check_given_back(sql)


def D4_stop_finishes_begun_messages_and_releases_the_rest(postroom, relay, sql, tmp_path):
    fill(sql, 40)
    os.mkfifo(tmp_path / 'gate')
    running = relay('--workers', '1', '--lease', '60s', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate; echo $POSTROOM_ID >> done')
    wait_until(lambda: words_in(tmp_path / 'begun'), 'the first to begin')
    running.process.terminate()
    wait_for_signal(running.process.pid)
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    # Opens the gate for every command that waits there, until the relay has ended.
    while running.process.poll() is None:
        os.write(gate, b'go\n')
        time.sleep(0.01)
    os.close(gate)
    assert running.process.returncode == 0
    begun, done = words_in(tmp_path / 'begun'), words_in(tmp_path / 'done')
    assert sorted(begun) == sorted(done) and 0 < len(done) < 40
    assert {id for id, in sql("SELECT id::text FROM postroom_outbox WHERE status = 'delivered'")} == set(
        done)
    check_given_back(sql)


def D4_message_past_the_grace_is_released(relay, sql, tmp_path):
    """Although the time is over by then, and it was the last attempt."""
    fill(sql, 3)
    running = relay('--shutdown-grace', '0s', '--max-attempts', '1', '--to', 'exec:echo x >> begun; sleep 1000')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'the commands to begin')
    running.stop()
    assert sql('SELECT DISTINCT status, attempts FROM postroom_outbox') == [('pending', 0)]


def D4_sleeping_relay_stops_immediately(postroom, relay, sql):
    """It would sleep for hours."""
    running = relay('--to', 'null:', '--poll-interval', '8h', '--lease', '24h', '--shutdown-grace', '24h')
    wait_until(lambda: sql('SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 + 500 '
                           'FROM postroom_sleepers') == [(True,)], 'the relay to sleep')
    running.stop()


def A2_relay_suspended_past_its_lease_settles_nothing_of_others(postroom, relay, sql, tmp_path):
    """Stopped in the middle of a publish, and woken when another relay has done its work."""
    fill(sql, 3)
    os.mkfifo(tmp_path / 'gate')
    sleeper = relay('--workers', '1', '--lease', '60s', '--publish-timeout', '20s', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'the first relay to publish')
    sleeper.process.send_signal(signal.SIGSTOP)
    expire_leases(sql)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    assert len(messages_in(tmp_path / 'out')) == 3
    before = sql('SELECT * FROM postroom_outbox ORDER BY seq')
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 3)
    sleeper.process.send_signal(signal.SIGCONT)
    sleeper.wait_for('OUTBOX_WORKER_SKIP_PROCESSED id=', 3)
    sleeper.stop()
    os.close(gate)
    assert 'DISPATCH_SUCCESS' not in sleeper.log and 'DISPATCH_FAIL' not in sleeper.log
    assert sql('SELECT * FROM postroom_outbox ORDER BY seq') == before
    assert sql('SELECT DISTINCT status, attempts FROM postroom_outbox') == [('delivered', 2)]


def A7_relay_suspended_past_its_lease_publishes_no_more_of_batch(postroom, relay, sql,
                                                                             tmp_path):
    fill(sql, 40)
    os.mkfifo(tmp_path / 'gate')
    # The commands outlast a slow moment of this test; else some have failed before the relay is stopped.
    sleeper = relay('--workers', '1', '--lease', '16s', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate')
    # All that go at once: one that is being started when the relay is stopped begins afterwards.
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 8, 'the first relay to publish')
    sleeper.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing' "
                           'AND locked_until > clock_timestamp()') == [(0,)], 'the leases to expire')
    claimed, = sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'")[0]
    postroom.ok('relay', '--drain', '--to', 'null:')
    begun = words_in(tmp_path / 'begun')
    assert claimed == 40 and len(begun) < 40
    sleeper.process.send_signal(signal.SIGCONT)
    sleeper.wait_for('OUTBOX_WORKER_SKIP_PROCESSED')
    sleeper.stop()
    assert words_in(tmp_path / 'begun') == begun


def A2_session_ended_while_relay_is_suspended_changes_nothing(postroom, relay, place, database,
                                                                      sql, tmp_path):
    """The same over a new connection: the fence is in the rows, not in the session."""
    fill(sql, 3)
    os.mkfifo(tmp_path / 'gate')
    sleeper = relay('--workers', '1', '--lease', '60s', '--publish-timeout', '20s', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'the first relay to publish')
    sleeper.process.send_signal(signal.SIGSTOP)
    place.terminate(database)
    expire_leases(sql)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    before = sql('SELECT * FROM postroom_outbox ORDER BY seq')
    gate = os.open(tmp_path / 'gate', os.O_RDWR)
    os.write(gate, b'go\n' * 3)
    sleeper.process.send_signal(signal.SIGCONT)
    sleeper.wait_for('OUTBOX_WORKER_SKIP_PROCESSED id=', 3)
    sleeper.stop()
    os.close(gate)
    assert sql('SELECT * FROM postroom_outbox ORDER BY seq') == before


def A5_slow_sink_never_causes_a_second_delivery(postroom, relay, sql, tmp_path):
    """A batch that takes longer than its lease, beside a relay that looks for expired ones."""
    fill(sql, 200)
    relays = [relay('--workers', '1', '--lease', '12s', '--to', 'exec:echo $POSTROOM_ID >> out; sleep 1.4')
              for _ in range(2)]
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'delivered'") == [(200,)],
               'all to be delivered')
    assert sql("SELECT max(delivered_at) - min(last_attempt_at) > interval '12s' "
               'FROM postroom_outbox') == [(True,)], 'it was too quick to prove anything'
    for running in relays:
        running.stop()
    assert len(words_in(tmp_path / 'out')) == 200
    assert sql('SELECT DISTINCT attempts FROM postroom_outbox') == [(1,)]
