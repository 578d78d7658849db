# SPDX-License-Identifier: Apache-2.0
"""A sink with an outage. Servers that fail are tested in tests/library/relay_outage.c."""
import re
import subprocess

from conftest import wait_until
from relay_process import enqueue_many, ids_in


def D5_outage_uses_no_attempts_and_probes_rotate(postroom, sql, tmp_path):
    enqueue_many(postroom, 30)
    relay = postroom.start('relay', '--workers', '3', '--max-attempts', '1', '--to',
                           'exec:echo $POSTROOM_ID >> tried; test -e up || exit 127;'
                           ' echo $POSTROOM_ID >> out', stderr=subprocess.PIPE)
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert line
    wait_until(lambda: sql("SELECT count(*) FROM postroom_outbox WHERE status = 'processing'") == [(0,)],
               'the messages in flight to be released')
    before = len(ids_in(tmp_path / 'tried'))
    wait_until(lambda: len(ids_in(tmp_path / 'tried')) >= before + 2, 'two probes')
    first, second = ids_in(tmp_path / 'tried')[before:before + 2]
    assert first != second
    (tmp_path / 'up').touch()
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    relay.terminate()
    log = relay.stderr.read()
    assert relay.wait() == 0
    assert log.count(b'OUTBOX_SINK_BACK') == 1 and b'OUTBOX_SINK_UNREACHABLE' not in log
    assert sql('SELECT DISTINCT status, attempts FROM postroom_outbox') == [('delivered', 1)]
    assert len(ids_in(tmp_path / 'out')) == 30
    # The messages that a probe was chosen from were not fetched.
    assert re.findall(rb'FETCH count=(\d+)', log.partition(b'OUTBOX_SINK_BACK')[0])[-2:] == [b'1', b'1']


def D1_drain_gives_up_on_sink_outage_and_loses_nothing(postroom, sql):
    enqueue_many(postroom, 3)
    error = postroom.fails(1, 'relay', '--drain', '--max-attempts', '1', '--log-level', 'error', '--to',
                           'exec:/nowhere/deliver')
    assert 'unreachable for 30 s' in error and 'exit status 127' in error
    assert sql('SELECT DISTINCT status, attempts FROM postroom_outbox') == [('pending', 0)]
