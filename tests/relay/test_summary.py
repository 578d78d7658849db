# SPDX-License-Identifier: Apache-2.0
"""What a relay says about the last minute (L1, M1)."""
import contextlib
import json
import os
import signal

import pytest

from conftest import wait_until
from relay_process import SOAK, enqueue_many, ids_in


def summaries(log, box='OUTBOX'):
    events = [json.loads(line) for line in log.splitlines() if line.endswith('}')]
    return [event for event in events if event['event'] == f'{box}_WORKER_SUMMARY']


def L1_stopping_relay_logs_a_summary(postroom):
    enqueue_many(postroom, 30, 'good')
    enqueue_many(postroom, 10, 'bad')
    result = postroom.ok('relay', '--drain', '--log-format', 'json', '--max-attempts', '1', '--to',
                         'exec:test "$POSTROOM_TOPIC" = good')
    summary, = summaries(result.err)
    counts = {name: summary[name] for name in ('fetched', 'delivered', 'failed', 'dead', 'lost', 'in_flight')}
    assert counts == {'fetched': 40, 'delivered': 30, 'failed': 10, 'dead': 10, 'lost': 0, 'in_flight': 0}
    assert summary['failure_ratio'] == 0.25
    assert summary['lag_ms'] >= 0
    # So young a relay has the same past in every window.
    assert summary['per_second_1m'] == summary['per_second_5m'] == summary['per_second_15m'] > 0


def L1_the_lag_is_the_time_from_creation_to_delivery(postroom, sql):
    postroom.enqueue()
    sql('UPDATE postroom_outbox SET created_at = created_at - 3600000000, '
        'next_attempt_at = next_attempt_at - 3600000000')
    result = postroom.ok('relay', '--drain', '--log-format', 'json', '--to', 'null:')
    summary, = summaries(result.err)
    assert summary['lag_ms'] >= 3600000


def L1_events_done_by_the_intake_count_and_have_no_lag(postroom, sql):
    postroom.ok('migrate')
    sql('CREATE TABLE ledger (n INTEGER CHECK (n <> 3))')
    lines = ''.join(json.dumps({'id': f'e{n}', 'payload': {'n': n}}) + '\n' for n in range(10))
    result = postroom.ok('consume', '--handler', 'h', '--from', '-', '--log-format', 'json', '--max-attempts', '1',
                         '--sql', "INSERT INTO ledger SELECT ?1 ->> 'n'", input=lines)
    summary, = summaries(result.err, 'INBOX')
    counts = {name: summary[name] for name in ('fetched', 'delivered', 'failed', 'dead', 'lost', 'in_flight')}
    assert counts == {'fetched': 10, 'delivered': 9, 'failed': 1, 'dead': 1, 'lost': 0, 'in_flight': 0}
    assert 'lag_ms' not in summary


def L1_idle_relay_logs_no_summary(postroom):
    postroom.ok('migrate')
    result = postroom.ok('relay', '--drain', '--log-format', 'json', '--to', 'null:')
    assert summaries(result.err) == []


@pytest.mark.skipif(not SOAK, reason='takes minutes')
def L1_summary_is_logged_every_minute_with_activity(postroom, tmp_path):
    os.mkfifo(tmp_path / 'gate')
    with open(tmp_path / 'log', 'wb') as log:
        relay = postroom.start('relay', '--log-format', 'json', '--lease', '10m', '--publish-timeout', '5m',
                               '--to', 'exec:echo $POSTROOM_ID >> begun; read word < gate; true', stderr=log)

    def seen():
        return summaries((tmp_path / 'log').read_text())

    postroom.enqueue()
    wait_until(lambda: ids_in(tmp_path / 'begun'), 'the message to be in flight')
    # A minute is as long as the patience.
    with contextlib.suppress(AssertionError):
        wait_until(seen)
    wait_until(seen, 'a summary')
    assert (seen()[0]['fetched'], seen()[0]['delivered'], seen()[0]['in_flight']) == (1, 0, 1)
    assert 'lag_ms' not in seen()[0]
    (tmp_path / 'gate').write_text('go\n')
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the delivery')
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0
    last = seen()[-1]
    assert (last['fetched'], last['delivered'], last['in_flight']) == (0, 1, 0)
