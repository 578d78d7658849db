# SPDX-License-Identifier: Apache-2.0
"""enqueue --ndjson: many messages from a file of any size."""
import base64
import json
import os
import resource
import sqlite3
import subprocess

import pytest

from conftest import PROGRAM, wait_until

TENANT = '6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b'


def line(**members):
    return json.dumps({'topic': 't', 'payload': {}, **members})


def write(tmp_path, lines):
    path = tmp_path / 'messages.ndjson'
    path.write_text('\n'.join(lines) + '\n')
    return path


def E7_every_member_of_a_line_is_a_column(postroom, tmp_path, sql):
    body = bytes(range(256))
    postroom.ok('enqueue', '--ndjson', write(tmp_path, [
        json.dumps({'topic': 'orders.created', 'payload': {'a': 1}, 'namespace': 'billing',
                    'tenant_id': TENANT, 'key': 'k\u00e9"\n', 'dedupe_key': f'{TENANT}/d',
                    'correlation_id': 'c', 'headers': {'h': 'v'}, 'content_type': 'x/y'}),
        line(idempotency_key='i', priority=60, delay='1h'),
        line(delay=1.5),
        json.dumps({'topic': 't', 'body_base64': base64.b64encode(body).decode()}),
        line(payload=None, key=None, delay=None, headers=None)]))
    empty, with_body, delayed, moved, whole = postroom.rows()
    assert (whole['topic'], whole['namespace'], whole['tenant_id']) == ('orders.created', 'billing', TENANT)
    assert (whole['key'], whole['dedupe_key']) == ('k\u00e9"\n', f'{TENANT}/d')
    assert (whole['headers'], whole['content_type']) == ({'h': 'v'}, 'x/y')
    assert (whole['correlation_id'], whole['payload']) == ('c', {'a': 1})
    assert moved['dedupe_key'] == 'i'
    assert base64.b64decode(with_body['body_base64']) == body and with_body['payload'] is None
    assert with_body['content_type'] == 'application/octet-stream'
    assert empty['payload'] is None and empty['key'] is None and empty['headers'] == {}
    assert [ms for ms, in sql('SELECT (next_attempt_at - created_at) / 1000 FROM postroom_outbox '
                              'WHERE seq IN (2, 3) ORDER BY seq')] == [3_540_000, 1_500]


def E5_payloads_are_copied_unchanged_from_the_line(postroom, tmp_path, sql):
    texts = ['{ "b" : 1.50,"a":[ 1e2 ] ,"b":2}', '"\\u00e9\\/"', '  [1 ,2]  ', '-0', 'null']
    lines = [f'{{"topic":"t","payload":{text},"key":"k"}}' for text in texts]
    postroom.ok('enqueue', '--ndjson', write(tmp_path, lines))
    assert [text for text, in sql('SELECT payload FROM postroom_outbox ORDER BY seq')] == \
        [text.strip() for text in texts]


def E7_lines_keep_their_order_and_are_counted(postroom, tmp_path):
    path = write(tmp_path, [line(key=str(n)) for n in range(2500)])
    assert postroom.ok('enqueue', '--ndjson', path).out == '2500 messages enqueued\n'
    assert [row['key'] for row in reversed(postroom.rows())] == [str(n) for n in range(2500)]


def E7_each_message_gets_its_receipt(postroom, tmp_path):
    path = write(tmp_path, [line(dedupe_key='a'), line(dedupe_key='b'), line(dedupe_key='a'), line()])
    receipts = postroom.ok('enqueue', '--ndjson', path, '--json').objects
    assert [receipt['duplicate'] for receipt in receipts] == [False, False, True, False]
    assert [receipt['dedupe_key'] for receipt in receipts] == ['a', 'b', 'a', None]
    assert receipts[2]['id'] == receipts[0]['id']
    rows = {row['id'] for row in postroom.rows()}
    assert rows == {receipt['id'] for receipt in receipts} and len(rows) == 3


def E7_duplicates_are_counted_and_logged(postroom, tmp_path):
    path = write(tmp_path, [line(dedupe_key='a'), line(dedupe_key='a'),
                            line(dedupe_key='a', payload=2)])
    result = postroom.ok('enqueue', '--ndjson', path)
    assert result.out == '1 message enqueued, 2 duplicates left out\n'
    assert result.err.count('OUTBOX_WORKER_DUPLICATE') == 2
    assert result.err.count('differs=yes') == 1


def E7_dash_reads_from_stdin(postroom):
    postroom.ok('enqueue', '--ndjson', '-', input=line() + '\n' + line())
    assert len(postroom.rows()) == 2


def E7_empty_lines_and_windows_line_ends_are_accepted(postroom, tmp_path):
    path = tmp_path / 'messages.ndjson'
    path.write_bytes(b'\n \r\n' + line().encode() + b'\r\n\n\n' + line().encode())
    assert postroom.ok('enqueue', '--ndjson', path).out == '2 messages enqueued\n'
    assert postroom.ok('enqueue', '--ndjson', '/dev/null').out == '0 messages enqueued\n'


def sixteen_good_lines_and(bad):
    return [line(key=str(n)) for n in range(1, 17)] + [bad, line(), line()]


def E5_invalid_json_on_line_17_is_named(postroom, tmp_path):
    path = write(tmp_path, sixteen_good_lines_and('{"topic": "t", "payload": {"a": nonsense}}'))
    error = postroom.fails(1, 'enqueue', '--ndjson', path)
    assert 'messages.ndjson: line 17, column 33: ' in error
    assert error.endswith('; nothing was written')
    assert postroom.rows() == []


def E5_rows_written_before_a_bad_line_are_reported(postroom, tmp_path):
    path = write(tmp_path, sixteen_good_lines_and('{'))
    error = postroom.fails(1, 'enqueue', '--ndjson', path, '--batch-size', '8')
    assert 'line 17, column 2: ' in error
    assert 'the lines up to line 16 were written (messages: 16' in error
    assert [row['key'] for row in reversed(postroom.rows())] == [str(n) for n in range(1, 17)]


def E5_batch_with_a_bad_line_is_rolled_back(postroom, tmp_path):
    path = write(tmp_path, sixteen_good_lines_and('{'))
    error = postroom.fails(1, 'enqueue', '--ndjson', path, '--batch-size', '10')
    assert 'the lines up to line 10 were written (messages: 10' in error and 'nothing after' in error
    assert len(postroom.rows()) == 10


def E5_an_atomic_file_with_a_bad_line_writes_nothing(postroom, tmp_path):
    path = write(tmp_path, [line() for _ in range(5000)] + ['{'])
    error = postroom.fails(1, 'enqueue', '--ndjson', path, '--batch-size', '8', '--atomic', '--json')
    assert 'line 5001, ' in error and error.endswith('nothing was written')
    assert postroom.rows() == []


def E7_atomic_file_is_one_transaction(postroom, tmp_path, db):
    """No reader sees a part of it: while the last line is awaited, the table is empty."""
    postroom.ok('migrate')
    process = postroom.start('enqueue', '--ndjson', '-', '--atomic', '--json', stdin=subprocess.PIPE)
    process.stdin.write((line() + '\n').encode() * 5000)
    process.stdin.flush()

    def locked():
        with sqlite3.connect(db, timeout=0, isolation_level=None) as other:
            try:
                other.execute('BEGIN IMMEDIATE')
                other.execute('ROLLBACK')
                return False
            except sqlite3.OperationalError:
                return True
    wait_until(locked, 'the first messages to be written')
    assert postroom.rows() == []
    out, err = process.communicate((line() + '\n').encode())
    assert process.returncode == 0, err
    assert len(out.splitlines()) == 5001 and len(postroom.rows()) == 5001


def E7_no_lock_is_held_while_waiting_for_input(postroom):
    postroom.ok('migrate')
    process = postroom.start('enqueue', '--ndjson', '-', '--batch-size', '3', stdin=subprocess.PIPE)
    process.stdin.write((line() + '\n').encode() * 5)
    process.stdin.flush()
    wait_until(lambda: len(postroom.rows()) == 3, 'the first batch')
    postroom.enqueue()
    process.stdin.close()
    assert process.wait() == 0
    assert len(postroom.rows()) == 6


@pytest.mark.parametrize('bad, column, word', [
    ('{"topic":"t","payload":1,"payloda":2}', 26, 'did you mean "payload"?'),
    ('{"topic":"é","paylöad":1}', 14, 'did you mean "payload"?'),
    ('{"topic":"t","payload":1,"status":"dead"}', 26, 'unknown member "status"'),
    ('{"topic":1,"payload":1}', 10, 'topic must be a string'),
    ('{"topic":"t","payload":1,"headers":[]}', 36, 'headers must be an object'),
    ('{"topic":"t","body_base64":"?"}', 28, 'not base64'),
    ('{"topic":"t","payload":1,"delay":"soon"}', 34, 'duration'),
    ('{"topic":"t","payload":1,"delay":-1}', 34, 'delay'),
    ('{"topic":"t","payload":1,"delay":1e300}', 34, 'delay'),
    ('{"topic":"t","payload":1,"priority":1.5}', 37, 'whole number'),
    ('{"topic":"t","payload":1,"priority":3601}', 37, '3600'),
    ('{"topic":"t","payload":1,"topic":"u"}', 26, 'given twice'),
    ('{"topic":"t","payload":1,"t\\u006fpic":"u"}', 26, 'given twice'),
    ('[1]', 1, 'not an object'), ('{"topic":"t","payload":1} x', 27, ''),
    ('{"topic":"t","payload":1', 25, 'unexpected end')])
def E5_a_bad_line_is_named_with_its_column(postroom, tmp_path, bad, column, word):
    error = postroom.fails(1, 'enqueue', '--ndjson', write(tmp_path, [line(), bad]))
    assert f'line 2, column {column}: ' in error and word in error


@pytest.mark.parametrize('members, field', [
    ({'topic': 'a\nb'}, 'topic'), ({'topic': ''}, 'topic'), ({'tenant_id': 'acme'}, 'tenant_id'),
    ({'tenant_id': TENANT, 'dedupe_key': 'x'}, 'dedupe_key'), ({'headers': {'a': 1}}, 'headers'),
    ({'payload': 'x' * 1024 * 1024}, 'payload'), ({'body_base64': 'AAAA'}, 'payload')])
def E5_a_refused_message_is_named_by_its_line(postroom, tmp_path, members, field):
    error = postroom.fails(1, 'enqueue', '--ndjson', write(tmp_path, [line(), '', line(**members)]))
    assert 'line 3: ' in error and field in error and 'nothing was written' in error
    assert postroom.rows() == []


def E5_a_line_without_topic_or_payload_is_refused(postroom, tmp_path):
    for bad, field in (('{"payload":1}', 'topic'), ('{"topic":"t"}', 'payload'), ('{}', 'topic')):
        assert f'line 1: {field}' in postroom.fails(1, 'enqueue', '--ndjson', write(tmp_path, [bad]))


def E5_an_endless_line_is_refused_without_reading_it_all(postroom):
    error = postroom.fails(1, 'enqueue', '--ndjson', '/dev/zero')
    assert 'line 1 is longer than' in error and '--max-payload' in error


@pytest.mark.skipif('san' in os.path.basename(os.path.dirname(PROGRAM)),
                    reason='sanitizers need more memory than the limit')
def E7_memory_does_not_grow_with_the_file(postroom, tmp_path):
    """60 MB of messages and their receipts, all in one transaction, with 24 MB of memory."""
    path = tmp_path / 'big.ndjson'
    with open(path, 'w') as file:
        for n in range(40_000):
            file.write(line(payload='x' * 1000, dedupe_key=f'{n:0400}') + '\n')

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (24 << 20, 24 << 20))
    result = postroom.ok('enqueue', '--ndjson', path, '--atomic', '--json', preexec_fn=limit)
    assert len(result.lines) == 40_000


def E7_message_options_exclude_a_file(postroom, tmp_path):
    path = write(tmp_path, [line()])
    assert '--ndjson' in postroom.fails(2, 'enqueue', '--ndjson', path, '--key', 'k')
    assert '--ndjson' in postroom.fails(2, 'enqueue', 'topic', '--ndjson', path)


def E7_unreadable_input_file_is_reported(postroom, db):
    assert 'nowhere' in postroom.fails(1, 'enqueue', '--ndjson', 'nowhere')
    assert not db.exists()
    assert 'directory' in postroom.fails(1, 'enqueue', '--ndjson', '.').lower()


def E7_closed_stdout_ends_the_run_and_reports_rows_written(postroom, tmp_path):
    path = write(tmp_path, [line() for _ in range(100)])
    reader, writer = os.pipe()
    os.close(reader)
    result = postroom('enqueue', '--ndjson', path, '--json', '--batch-size', '10', stdout=writer)
    os.close(writer)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1 and 'Broken pipe' in result.err
    assert 'the lines up to line 10 were written' in result.err
    assert len(postroom.rows()) == 10
