# SPDX-License-Identifier: Apache-2.0
"""A relay at work: what it logs, retries, dead-letters, drains, and how much memory it takes."""
import json
import re

import pytest

from conftest import wait_until
from relay_process import SOAK, enqueue_many, ids_in, lines_of, sanitized


def log_of(result, event):
    return [line for line in result.err.splitlines() if line.startswith(event + ' ')]


def L1_every_step_is_one_line_of_text(postroom):
    good = postroom.enqueue('good', '{}', '--dedupe-key', 'order-1')
    plain = postroom.enqueue('good', '{}')
    bad = postroom.enqueue('bad', '{}')
    result = postroom.ok('relay', '--drain', '--workers', '1', '--max-attempts', '2', '--base-delay',
                         '10ms', '--to', 'exec:test "$POSTROOM_TOPIC" = good')
    assert log_of(result, 'OUTBOX_WORKER_FETCH')[0].startswith('OUTBOX_WORKER_FETCH count=3 ')
    success = log_of(result, 'OUTBOX_WORKER_DISPATCH_SUCCESS')
    assert len(success) == 2
    assert any(f'id={good} key=order-1 ' in line for line in success)
    assert any(f'id={plain} key={plain} ' in line for line in success)
    failed = log_of(result, 'OUTBOX_WORKER_DISPATCH_FAIL')
    assert [re.search(r'retry=(\d+) max=(\d+)', line).groups() for line in failed] == [
        ('1', '2'), ('2', '2')]
    assert all(f'id={bad} key={bad} ' in line for line in failed)
    dead, = log_of(result, 'OUTBOX_WORKER_DEAD')
    assert dead.startswith(f'OUTBOX_WORKER_DEAD id={bad} key={bad} attempts=2 ')


def L1_every_step_is_one_object_in_json(postroom):
    bad = postroom.enqueue('bad', '{}')
    result = postroom.ok('relay', '--drain', '--log-format', 'json', '--max-attempts', '1', '--to',
                         'exec:printf \'say "no"\\n\' >&2; exit 3')
    events = [json.loads(line) for line in result.err.splitlines()]
    by_name = {event['event']: event for event in events}
    assert by_name['OUTBOX_WORKER_FETCH']['count'] == 1
    fail = by_name['OUTBOX_WORKER_DISPATCH_FAIL']
    assert (fail['id'], fail['key'], fail['retry'], fail['max']) == (bad, bad, 1, 1)
    assert 'say "no"' in fail['error']
    assert by_name['OUTBOX_WORKER_DEAD']['attempts'] == 1


def L1_hostile_value_cannot_forge_a_line(postroom):
    postroom.enqueue('t', '{}', '--dedupe-key', 'a b="c"\nOUTBOX_WORKER_DEAD id=x')
    result = postroom.ok('relay', '--drain', '--to', 'null:')
    assert log_of(result, 'OUTBOX_WORKER_DEAD') == []
    assert len(log_of(result, 'OUTBOX_WORKER_DISPATCH_SUCCESS')) == 1


def R1_failing_message_is_retried_until_it_succeeds(postroom, tmp_path, sql):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--base-delay', '20ms', '--to',
                'exec:echo $POSTROOM_ATTEMPT >> tries; test $(wc -l < tries) -ge 4')
    assert ids_in(tmp_path / 'tries') == ['1', '2', '3', '4']
    row = postroom.show(id)
    assert (row['status'], row['attempts'], row['last_error']) == ('delivered', 4, None)


def R1_failed_message_waits_for_its_backoff(postroom, sql):
    postroom.enqueue()
    relay = postroom.start('relay', '--base-delay', '40s', '--to', 'exec:exit 1')
    (delay, error), = wait_until(lambda: sql(
        "SELECT next_attempt_at - updated_at, last_error FROM postroom_outbox"
        " WHERE status = 'pending' AND attempts = 1"), 'the first failure')
    assert 20_000_000 <= delay <= 40_000_000
    assert 'exit' in error
    relay.terminate()
    assert relay.wait() == 0


def A3_a_message_is_dead_after_its_last_attempt(postroom):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--max-attempts', '3', '--base-delay', '10ms', '--to',
                'exec:echo why it failed >&2; exit 7')
    row = postroom.show(id)
    assert (row['status'], row['attempts']) == ('dead', 3)
    assert 'why it failed' in row['last_error']
    assert row['locked_by'] is None and row['locked_until'] is None


def R2_exit_65_is_permanent(postroom, tmp_path):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'exec:echo x >> tries; echo no such order >&2; exit 65')
    row = postroom.show(id)
    assert (row['status'], row['attempts']) == ('dead', 1)
    assert 'no such order' in row['last_error']
    assert ids_in(tmp_path / 'tries') == ['x']


def X1_a_dead_message_is_delivered_after_retry(postroom, tmp_path):
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'exec:exit 65')
    assert postroom.show(id)['status'] == 'dead'
    postroom.ok('retry', id)
    postroom.ok('relay', '--drain', '--to', 'file:out')
    message, = lines_of(tmp_path / 'out')
    assert (message['id'], message['attempt']) == (id, 1)


def D1_drain_ignores_delayed_messages_and_waits_for_retries(postroom, tmp_path):
    later = postroom.enqueue('later', '{}', '--delay', '1h')
    retried = postroom.enqueue('now', '{}')
    other = postroom.enqueue('elsewhere', '{}', '--namespace', 'other')
    postroom.ok('relay', '--drain', '--namespace', 'default', '--base-delay', '20ms', '--to',
                'exec:echo >> tries; test $(wc -l < tries) -ge 2')
    assert postroom.show(retried)['status'] == 'delivered'
    assert postroom.show(later)['status'] == 'pending' and postroom.show(later)['attempts'] == 0
    assert postroom.show(other)['status'] == 'pending'


def D1_drain_waits_for_messages_claimed_by_another_relay(postroom, sql, tmp_path):
    id = postroom.enqueue()
    sql("UPDATE postroom_outbox SET status = 'processing', attempts = 1, claims = 1,"
        " locked_by = 'other', locked_until = (unixepoch() + 2) * 1000000")
    postroom.ok('relay', '--drain', '--to', 'file:out')
    message, = lines_of(tmp_path / 'out')
    assert (message['id'], message['attempt']) == (id, 2)


def C5_next_relay_dead_letters_messages_of_crashed_relay(postroom, sql):
    id = postroom.enqueue()
    sql("UPDATE postroom_outbox SET status = 'processing', attempts = 2, claims = 2,"
        " locked_by = 'other', locked_until = 1")
    result = postroom.ok('relay', '--drain', '--max-attempts', '2', '--to', 'null:')
    assert postroom.show(id)['status'] == 'dead'
    assert log_of(result, 'OUTBOX_WORKER_DEAD')[0].startswith(
        f'OUTBOX_WORKER_DEAD id={id} key={id} attempts=2 ')


def C4_two_relays_and_four_producers_deliver_everything_once(postroom, tmp_path):
    """Without kills, exactly once: every message is in the sinks one time."""
    count = 5000 if SOAK else 400
    relays = [postroom.start('relay', '--to', f'file:out{n}', '--batch-size', '20', '--log-level',
                             'warn') for n in range(2)]
    producers = []
    for n in range(4):
        path = tmp_path / f'in{n}'
        path.write_text(''.join('{"topic":"t","payload":[%d,%d]}\n' % (n, i) for i in range(count)))
        producers.append(postroom.start('enqueue', '--ndjson', path, '--batch-size', '10'))
    for producer in producers:
        _, errors = producer.communicate()
        assert producer.returncode == 0, errors
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    for relay in relays:
        relay.terminate()
        _, errors = relay.communicate()
        assert (relay.returncode, errors) == (0, b'')
    messages = lines_of(tmp_path / 'out0') + lines_of(tmp_path / 'out1')
    assert sorted(tuple(message['payload']) for message in messages) == sorted(
        (n, i) for n in range(4) for i in range(count))
    assert {message['attempt'] for message in messages} == {1}


def D8_memory_stays_bounded_with_any_backlog(postroom):
    """The highest the relay ever took, in absolute terms: what INTERFACE promises for a million."""
    if sanitized():
        pytest.skip('a sanitizer takes memory of its own')
    count = 1_000_000 if SOAK else 60_000
    enqueue_many(postroom, count, size=1000)
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
    assert postroom.stats()['delivered'] == count
    assert 0 < peak < 32 * 1024, f'{peak} KiB'
