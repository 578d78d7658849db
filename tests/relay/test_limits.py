# SPDX-License-Identifier: Apache-2.0
"""How much a sink is given at once and in a second, and how much the relay holds."""
import subprocess
import time

import pytest

from conftest import wait_until
from relay_process import enqueue_many, ids_in, lines_of, sanitized


def D8_publishing_stays_within_the_rate(postroom):
    """At once a second's worth, and the other 50 a second later at the earliest."""
    enqueue_many(postroom, 100)
    begun = time.monotonic()
    postroom.ok('relay', '--drain', '--rate', '50/s', '--to', 'null:', '--log-level', 'warn')
    assert time.monotonic() - begun >= 1
    assert postroom.stats()['delivered'] == 100


def D8_claim_waits_for_the_rate(postroom, sql, tmp_path):
    enqueue_many(postroom, 10)
    relay = postroom.start('relay', '--rate', '1/h', '--to', 'file:out', stderr=subprocess.DEVNULL)
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the one of this hour')
    assert sql("SELECT status, attempts, claims, count(*) FROM postroom_outbox GROUP BY 1, 2, 3") == [
        ('delivered', 1, 1, 1), ('pending', 0, 0, 9)]
    relay.terminate()
    assert relay.wait() == 0


def D8_database_outage_uses_no_rate(postroom, sql, tmp_path):
    """What could not even be claimed was not published: the one of this hour is still to come."""
    postroom.ok('migrate')
    sql('ALTER TABLE postroom_outbox RENAME TO gone')
    with open(tmp_path / 'log', 'wb') as log:
        relay = postroom.start('relay', '--workers', '1', '--rate', '1/h', '--to', 'file:out', stderr=log)
    wait_until(lambda: (tmp_path / 'log').read_text().count('OUTBOX_STORE_TROUBLE') >= 3, 'trouble')
    sql('ALTER TABLE gone RENAME TO postroom_outbox')
    postroom.enqueue()
    wait_until(lambda: lines_of(tmp_path / 'out'), 'the one of this hour')
    relay.terminate()
    assert relay.wait() == 0


def D8_messages_in_flight_stay_within_concurrency_of_sink(postroom, tmp_path):
    enqueue_many(postroom, 30)
    relay = postroom.start('relay', '--workers', '2', '--concurrency', '3', '--batch-size', '5',
                           '--drain', '--to', 'exec:echo + >> trace;'
                           ' until [ -e go ]; do sleep 0.01; done;'
                           ' echo - >> trace', stderr=subprocess.DEVNULL)
    wait_until(lambda: len(ids_in(tmp_path / 'trace')) == 3, 'as many as may')
    (tmp_path / 'go').touch()
    assert relay.wait() == 0
    running, most = 0, 0
    for step in ids_in(tmp_path / 'trace'):
        running += 1 if step == '+' else -1
        most = max(most, running)
    assert (running, most) == (0, 3)
    assert postroom.stats()['delivered'] == 30


def D8_concurrency_of_commands_can_exceed_the_default(postroom, tmp_path):
    enqueue_many(postroom, 20)
    relay = postroom.start('relay', '--workers', '1', '--concurrency', '20', '--drain', '--to',
                           'exec:echo + >> trace; until [ -e go ]; do sleep 0.05; done',
                           stderr=subprocess.DEVNULL)
    wait_until(lambda: len(ids_in(tmp_path / 'trace')) == 20, 'all of them')
    (tmp_path / 'go').touch()
    assert relay.wait() == 0


def fetched(log):
    return [int(line.split()[1].removeprefix('count=')) for line in log.splitlines()
            if line.startswith('OUTBOX_WORKER_FETCH ')]


def D8_slow_sink_receives_smaller_batches(postroom):
    """Four at a time and half a second each: about eight a second, after the first."""
    enqueue_many(postroom, 40)
    result = postroom.ok('relay', '--workers', '1', '--concurrency', '4', '--batch-size', '16', '--drain',
                         '--to', 'exec:sleep 0.5')
    counts = fetched(result.err)
    assert counts[0] == 16 and counts[1] < 16, counts


def D8_batch_for_slow_concurrent_sink_uses_full_concurrency(postroom):
    """Each outlasts a slice, and four run together: four make a batch as before."""
    enqueue_many(postroom, 12)
    result = postroom.ok('relay', '--workers', '1', '--concurrency', '4', '--batch-size', '4', '--drain',
                         '--to', 'exec:sleep 1.4')
    assert fetched(result.err) == [4, 4, 4]


def D8_slow_message_uses_one_slot_of_the_concurrency(postroom, tmp_path):
    """It begins alone, a slice after the one before it, while the other worker has nothing to do."""
    first, slow = [postroom.enqueue('slow', '{}', '--key', 'k') for _ in range(2)]
    relay = postroom.start('relay', '--workers', '2', '--concurrency', '4', '--lease', '1h',
                           '--publish-timeout', '20m', '--to',
                           'exec:echo $POSTROOM_ID >> begun; test $POSTROOM_TOPIC = quick && exit;'
                           f' test $POSTROOM_ID = {first} && exec sleep 1.2;'
                           ' until [ -e go ]; do sleep 0.01; done', stderr=subprocess.DEVNULL)
    wait_until(lambda: ids_in(tmp_path / 'begun') == [first, slow], 'the slow one')
    quick = postroom.enqueue('quick')
    wait_until(lambda: postroom.show(quick)['status'] == 'delivered', 'the quick one')
    (tmp_path / 'go').touch()
    wait_until(lambda: postroom.show(slow)['status'] == 'delivered', 'the slow one')
    relay.terminate()
    assert relay.wait() == 0


@pytest.mark.parametrize('limit', [('--rate', '5/s'), ('--concurrency', '3')])
def G1_a_limit_without_its_sink_is_refused(postroom, tmp_path, limit):
    """It would not limit the sinks of a configuration."""
    (tmp_path / 'c.yaml').write_text('sinks: { a: { url: "null:" } }\nroutes: [ { sink: a } ]\n')
    assert 'require --to' in postroom.fails(2, 'relay', '-c', 'c.yaml', '--drain', *limit)


@pytest.mark.parametrize('rate', ['0', 'fast', '5/d'])
def G1_invalid_rate_is_refused(postroom, rate):
    assert '500/s' in postroom.fails(2, 'relay', '--to', 'null:', '--rate', rate)


def D8_memory_stays_bounded_with_any_message_size(postroom):
    """Two workers with two batches each: bytes are counted, not messages."""
    if sanitized():
        pytest.skip('a sanitizer takes memory of its own')
    enqueue_many(postroom, 80, size=900_000)
    relay = postroom.start('relay', '--drain', '--to', 'null:', '--log-level', 'warn')
    peak = 0
    while relay.poll() is None:
        try:
            with open(f'/proc/{relay.pid}/status', encoding='ascii') as status:
                peaks = [int(line.split()[1]) for line in status if line.startswith('VmHWM:')]
        except ProcessLookupError:
            peaks = []
        peak = max([peak, *peaks])
    assert relay.returncode == 0, relay.stderr.read()
    assert postroom.stats()['delivered'] == 80
    assert 0 < peak < 64 * 1024, f'{peak} KiB'
