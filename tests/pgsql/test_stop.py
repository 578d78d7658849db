# SPDX-License-Identifier: Apache-2.0
"""Stopping on a server, and suspended relays there. databases/test_stop.py has what both databases share."""
import os
import signal

from conftest import wait_until
from sink_files import words_in


def fill(sql, count):
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', to_jsonb(n) "
        'FROM generate_series(1, %s) n', count)


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
                           'FROM postroom_notify_until') == [(True,)], 'the relay to sleep')
    running.stop()


def A2_session_ended_while_relay_is_suspended_changes_nothing(postroom, relay, place, database,
                                                                      sql, tmp_path):
    """The same over a new connection: the fence is in the rows, not in the session."""
    fill(sql, 3)
    os.mkfifo(tmp_path / 'gate')
    sleeper = relay('--workers', '1', '--lease', '1h', '--publish-timeout', '20m', '--to',
                    'exec:echo $POSTROOM_ID >> begun; read word < gate')
    wait_until(lambda: len(words_in(tmp_path / 'begun')) == 3, 'the first relay to publish')
    sleeper.process.send_signal(signal.SIGSTOP)
    place.terminate(database)
    sql("UPDATE postroom_outbox SET locked_until = '2000-01-01' WHERE status = 'processing'")
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
    """A batch that takes longer than its lease, beside a relay that reclaims expired leases."""
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
