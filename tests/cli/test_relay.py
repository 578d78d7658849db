# SPDX-License-Identifier: Apache-2.0
"""relay as a command: its options, its signals, its exit status."""
import json
import os
import pathlib
import signal
import sqlite3

import pytest

from conftest import wait_until


def D1_settings_are_checked_at_the_start(postroom, db):
    for args, words in (
            ([], ['--to']), (['--to', 'nul:'], ['null:']), (['--to', 'kafka:///t'], ['kafka']),
            (['--to', 'null:', '--poll-interval', '11s'], ['poll-interval', 'lease']),
            (['--to', 'null:', '--publish-timeout', '16s'], ['publish-timeout', 'lease']),
            (['--to', 'null:', '--base-delay', '10m'], ['base-delay', 'max-delay']),
            (['--to', 'null:', '--retention', 'soon'], ['retention', 'soon']),
            (['--to', 'null:', '--tenant', 'acme'], ['UUID'])):
        line = postroom.fails(2, 'relay', *args)
        assert all(word in line for word in words), line


def G1_process_list_shows_no_secret_of_a_sink(postroom):
    secret = 'whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo'
    postroom.enqueue()
    relay = postroom.start(
        'relay', '--to', f'http://127.0.0.1:1/?secret={secret}&header=X-Key: {secret}&secret={secret}')
    assert secret.encode() not in relay.stderr.readline()
    line = pathlib.Path('/proc', str(relay.pid), 'cmdline').read_bytes()
    assert b'secret=' in line and secret.encode() not in line


def W1_one_process_delivers_everything(postroom):
    ids = [postroom.enqueue('t', '{"n":%d}' % n) for n in range(20)]
    result = postroom.ok('relay', '--to', 'stdout:', '--drain')
    assert sorted(message['id'] for message in result.objects) == sorted(ids)
    assert {row['status'] for row in postroom.rows()} == {'delivered'}


def D2_relay_does_not_parse_payloads(postroom):
    """Whatever it says about itself, it is delivered, with the very text it was enqueued with."""
    texts = ['{"status":"dead","topic":"other","delay":"1h"}', '{ "a" : 1.50, "a": 2e0 }', 'null',
             '{"error":true,"retry":false}', '"\\u00e9{topic}"', '[]']
    for text in texts:
        postroom.enqueue('t', text)
    lines = postroom.ok('relay', '--to', 'stdout:', '--drain', '--workers', '1').lines
    assert len(lines) == len(texts)
    for line, text in zip(lines, texts):
        assert line.endswith(f'"payload":{text}}}') and '"topic":"t"' in line


def W1_relay_creates_its_database(postroom):
    assert postroom.ok('relay', '--to', 'null:', '--drain').out == ''
    assert postroom.rows() == []


def C6_a_relay_can_be_limited_to_a_scope(postroom):
    tenant = '6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b'
    shop = postroom.enqueue('orders.created', '{}', '--namespace', 'shop')
    paid = postroom.enqueue('orders.paid', '{}', '--tenant', tenant)
    mail = postroom.enqueue('mail')
    for args, id in ((['--namespace', 'shop'], shop), (['--topic', 'orders.*'], paid),
                     (['--tenant', tenant.upper()], None), ([], mail)):
        result = postroom.ok('relay', '--to', 'stdout:', '--drain', *args)
        assert [message['id'] for message in result.objects] == ([id] if id else [])


def L1_events_are_logged_as_text_and_as_json(postroom):
    id = postroom.enqueue('t', '{}', '--dedupe-key', 'd')
    log = postroom.ok('relay', '--to', 'null:', '--drain').err
    assert 'OUTBOX_WORKER_FETCH count=1' in log
    assert f'OUTBOX_WORKER_DISPATCH_SUCCESS id={id} key=d' in log
    id = postroom.enqueue()
    log = postroom.ok('relay', '--to', 'null:', '--drain', '--log-format', 'json').err
    events = [json.loads(line) for line in log.splitlines()]
    assert any(id == event.get('id') for event in events)


def L1_log_level_is_respected(postroom):
    postroom.enqueue()
    assert postroom.ok('relay', '--to', 'null:', '--drain', '--log-level', 'warn').err == ''


def R1_max_attempts_of_the_command_line_applies_to_the_relay(postroom):
    id = postroom.enqueue()
    result = postroom.ok('relay', '--to', 'exec:echo broken >&2; exit 1', '--drain',
                         '--max-attempts', '3', '--base-delay', '1ms', '--max-delay', '2ms',
                         '--max-error-length', '5')
    row = postroom.show(id)
    assert (row['status'], row['attempts'], len(row['last_error'])) == ('dead', 3, 5)
    assert result.err.count('OUTBOX_WORKER_DISPATCH_FAIL') >= 2
    assert 'OUTBOX_WORKER_DEAD' in result.err


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def D4_signal_ends_relay_with_exit_0(postroom, tmp_path, number):
    relay = postroom.start('relay', '--to', 'file:out.ndjson')
    id = postroom.enqueue()
    wait_until(lambda: postroom.show(id)['status'] == 'delivered', 'the delivery')
    relay.send_signal(number)
    assert relay.wait() == 0
    assert len((tmp_path / 'out.ndjson').read_text().splitlines()) == 1


def D4_signal_ends_relay_while_database_is_locked(postroom, db):
    postroom.ok('migrate')
    with sqlite3.connect(db, isolation_level=None) as holder:
        holder.execute('BEGIN EXCLUSIVE')
        relay = postroom.start('relay', '--to', 'null:')
        wait_until(lambda: os.path.exists(f'/proc/{relay.pid}/task')
                   and len(os.listdir(f'/proc/{relay.pid}/task')) > 1, 'its threads')
        relay.terminate()
        assert relay.wait() == 0
        holder.execute('ROLLBACK')


def pending_signals(pid):
    with open(f'/proc/{pid}/status') as file:
        return int(next(line for line in file if line.startswith('ShdPnd')).split()[1], 16)


def D4_second_signal_ends_relay_immediately_and_loses_nothing(postroom, tmp_path, sql):
    id = postroom.enqueue()
    relay = postroom.start('relay', '--to', 'exec:echo $$ >pid.new; mv pid.new pid; exec sleep 1000',
                           '--lease', '1h', '--publish-timeout', '30m', '--shutdown-grace', '1h')
    wait_until((tmp_path / 'pid').exists, 'the command to run')
    relay.terminate()
    wait_until(lambda: pending_signals(relay.pid) == 0, 'the first signal to be taken')
    relay.terminate()
    assert relay.wait() == 1
    command = int((tmp_path / 'pid').read_text())
    wait_until(lambda: not os.path.exists(f'/proc/{command}'), 'the command to end with the relay')
    assert postroom.show(id)['status'] == 'processing'
    sql('UPDATE postroom_outbox SET locked_until = 1')
    postroom.ok('relay', '--to', 'null:', '--drain')
    assert postroom.show(id)['status'] == 'delivered'


def K2_sighup_reopens_the_file_of_a_file_sink(postroom, tmp_path):
    old, new = tmp_path / 'old.ndjson', tmp_path / 'out.ndjson'
    relay = postroom.start('relay', '--to', 'file:out.ndjson', '--poll-interval', '10ms')
    ids = [postroom.enqueue()]
    wait_until(lambda: postroom.show(ids[0])['status'] == 'delivered', 'the first delivery')
    os.rename(new, old)
    relay.send_signal(signal.SIGHUP)

    def one_more_makes_the_new_file():
        ids.append(postroom.enqueue())
        wait_until(lambda: postroom.show(ids[-1])['status'] == 'delivered', 'a delivery')
        return new.exists()
    wait_until(one_more_makes_the_new_file, 'the new file')
    relay.terminate()
    assert relay.wait() == 0
    lines = (old.read_text() + new.read_text()).splitlines()
    assert [json.loads(line)['id'] for line in lines] == ids


def K1_broken_stdout_ends_the_relay_and_loses_nothing(postroom):
    id = postroom.enqueue()
    reader, writer = os.pipe()
    os.close(reader)
    result = postroom('relay', '--to', 'stdout:', '--drain', stdout=writer)
    os.close(writer)
    assert result.code == 1
    errors = [line for line in result.err.splitlines() if line.startswith('postroom: ')]
    assert len(errors) == 1 and 'Broken pipe' in errors[0]
    assert postroom.show(id)['status'] != 'delivered'


def K3_missing_command_is_reported_and_loses_nothing(postroom):
    id = postroom.enqueue()
    relay = postroom.start('relay', '--to', 'exec:/no/such/command', '--poll-interval', '10ms')
    lines = []
    while not any(b'/no/such/command' in line for line in lines):
        lines.append(relay.stderr.readline())
        assert lines[-1], lines
    relay.terminate()
    assert relay.wait() == 0
    row = postroom.show(id)
    assert row['status'] == 'pending' and row['attempts'] == 0
