# SPDX-License-Identifier: Apache-2.0
"""enqueue: one message, its options, and what is refused."""
import os
import re
import subprocess
import sys

import pytest

TENANT = '6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b'
OTHER = '00000000-0000-0000-0000-000000000001'
UUID7 = r'[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'


def E2_a_new_message_is_pending_untried_and_due_now(postroom):
    row = postroom.show(postroom.enqueue('orders.created', '{"order": 17}'))
    assert row['status'] == 'pending' and row['attempts'] == 0 and row['claims'] == 0
    assert row['locked_by'] is None and row['locked_until'] is None
    assert row['next_attempt_at'] == row['created_at']
    assert row['namespace'] == 'default' and row['content_type'] == 'application/json'
    assert row['headers'] == {} and row['payload'] == {'order': 17}


def E2_delay_and_priority_move_the_first_attempt(postroom, sql):
    postroom.enqueue('later', '{}', '--delay', '10m')
    postroom.enqueue('sooner', '{}', '--priority', '60')
    moved = dict(sql('SELECT topic, next_attempt_at - created_at FROM postroom_outbox'))
    assert moved == {'later': 600_000_000, 'sooner': -60_000_000}


def E5_payload_is_stored_unchanged(postroom, sql):
    text = '{ "b":1.50,\t"a" : [1e2, "\\u00e9", "é"],  "b":2 }'
    postroom.enqueue('t', text)
    postroom.ok('enqueue', 't', input=text)
    postroom.ok('enqueue', 't', '-', input=text + '\n')
    assert sql('SELECT payload FROM postroom_outbox') == [(text,)] * 3


@pytest.mark.parametrize('payload', ['', '{', '{"a":1,}', "{'a':1}", 'nope', '"\\u0000"', '"\\ud800"',
                                     '1e999999', '[1] 2'])
def E5_invalid_json_is_refused_and_nothing_is_written(postroom, db, payload):
    assert 'payload' in postroom.fails(1, 'enqueue', 't', input=payload)
    assert not db.exists()


def E5_invalid_json_error_names_the_position(postroom):
    assert 'at byte 7' in postroom.fails(1, 'enqueue', 't', '{"a":1;}')


def E5_text_that_is_not_utf8_or_holds_nul_is_refused(postroom, db):
    assert 'UTF-8' in postroom.fails(1, 'enqueue', 't', input=b'"\xff"')
    assert 'payload' in postroom.fails(1, 'enqueue', 't', input=b'"a\0b"')
    assert 'topic' in postroom.fails(1, 'enqueue', b'\xff'.decode('utf-8', 'surrogateescape'), '{}')
    assert not db.exists()


@pytest.mark.parametrize('args, field', [
    (['a\nb', '{}'], 'topic'), (['\x1b[31m', '{}'], 'topic'), (['', '{}'], 'topic'),
    (['x' * 256, '{}'], 'topic'), (['t', '{}', '--namespace', ''], 'namespace'),
    (['t', '{}', '--key', 'k' * 1025], 'key'), (['t', '{}', '--tenant', 'acme'], 'tenant_id'),
    (['t', '{}', '--dedupe-key', 'd' * 513], 'dedupe_key'),
    (['t', '{}', '--correlation-id', 'c' * 256], 'correlation_id'),
    (['t', '{}', '--content-type', 'a\tb'], 'content_type'),
    (['t', '{}', '--header', 'h=' + 'v' * 65536], 'headers')],
    ids=lambda value: value if isinstance(value, str) else '')
def E5_bad_input_names_the_field_and_nothing_is_written(postroom, db, args, field):
    assert field in postroom.fails(1, 'enqueue', *args)
    assert not db.exists()


def E5_a_payload_of_100_mb_is_refused_without_reading_it_all(postroom, db, tmp_path):
    huge = tmp_path / 'huge.json'
    with open(huge, 'wb') as file:
        file.truncate(100 * 1024 * 1024)
    with open(huge, 'rb') as file:
        line = postroom.fails(1, 'enqueue', 't', stdin=file)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) <= 1024 * 1024 + 1
    assert '1048576' in line and '--max-payload' in line
    assert '1048576' in postroom.fails(1, 'enqueue', 't', '--body-file', huge)
    assert not db.exists()


def E5_the_largest_payload_fits_and_one_byte_more_does_not(postroom):
    fits = '"' + 'x' * (1024 * 1024 - 2) + '"'
    postroom.ok('enqueue', 't', input=fits)
    assert 'larger' in postroom.fails(1, 'enqueue', 't', input=fits + ' ')
    postroom.ok('enqueue', 't', '--max-payload', '2M', input=fits + ' ')
    assert 'larger than the maximum of 99 bytes; --max-payload allows more' in postroom.fails(
        1, 'enqueue', 't', '"' + 'x' * 98 + '"', '--max-payload', '99')


def E8_every_field_of_a_message_can_be_given(postroom):
    row = postroom.show(postroom.enqueue(
        'orders.created', '{"a":1}', '--namespace', 'billing', '--tenant', TENANT.upper(),
        '--key', 'o-1', '--dedupe-key', f'{TENANT}/abc', '--correlation-id', 'corr-1',
        '--header', 'trace=a=b', '--header', 'empty=', '--content-type', 'application/x+json'))
    assert (row['namespace'], row['tenant_id'], row['key']) == ('billing', TENANT, 'o-1')
    assert (row['dedupe_key'], row['correlation_id']) == (f'{TENANT}/abc', 'corr-1')
    assert row['headers'] == {'trace': 'a=b', 'empty': ''}
    assert row['content_type'] == 'application/x+json'


def E8_a_binary_body_is_kept_byte_for_byte(postroom, sql, tmp_path):
    body = bytes(range(256)) * 10
    (tmp_path / 'page.png').write_bytes(body)
    row = postroom.show(postroom.ok('enqueue', 'scans', '--json', '--body-file', 'page.png',
                                    '--content-type', 'image/png').object['id'])
    assert row['payload'] is None and row['content_type'] == 'image/png'
    postroom.ok('enqueue', 'scans', '--body-file', '-', input=body)
    postroom.ok('enqueue', 'scans', '--body-file', '/dev/null')
    assert sql('SELECT body FROM postroom_outbox') == [(body,), (body,), (b'',)]
    import base64
    assert base64.b64decode(row['body_base64']) == body


def E8_unreadable_body_file_is_reported(postroom, db):
    assert 'nowhere.png' in postroom.fails(1, 'enqueue', 't', '--body-file', 'nowhere.png')
    assert 'directory' in postroom.fails(1, 'enqueue', 't', '--body-file', '.').lower()
    assert 'exclude' in postroom.fails(2, 'enqueue', 't', '{}', '--body-file', '/dev/null')
    assert not db.exists()


@pytest.mark.parametrize('headers', [['novalue'], ['=x'], ['a=1', 'a=2']])
def E8_invalid_header_is_a_usage_error(postroom, headers):
    args = [word for header in headers for word in ('--header', header)]
    assert '--header' in postroom.fails(2, 'enqueue', 't', '{}', *args)


def E3_a_second_message_with_the_key_is_a_duplicate(postroom):
    first = postroom.ok('enqueue', 't', '{"a":1}', '--dedupe-key', 'd', '--json').object
    second = postroom.ok('enqueue', 't', '{"a":1}', '--dedupe-key', 'd', '--json').object
    assert first['duplicate'] is False and second['duplicate'] is True
    assert second['id'] == first['id'] and second['dedupe_key'] == 'd'
    assert postroom.ok('enqueue', 't', '{"a":1}', '--dedupe-key', 'd').out == first['id'] + '\n'
    assert len(postroom.rows()) == 1
    assert not postroom.ok('enqueue', 'u', '{}', '--dedupe-key', 'd', '--json').object['duplicate']
    assert not postroom.ok('enqueue', 't', '{}', '--dedupe-key', 'd', '--namespace', 'n',
                           '--json').object['duplicate']


def E3_parallel_producers_leave_one_row(postroom):
    postroom.ok('migrate')
    producers = [postroom.start('enqueue', 't', '{}', '--dedupe-key', 'd', '--json')
                 for _ in range(8)]
    assert [producer.wait() for producer in producers] == [0] * 8
    assert len(postroom.rows()) == 1


def L1_a_duplicate_is_logged_with_tenant_and_key(postroom):
    postroom.enqueue('t', '{"a":1}', '--tenant', TENANT, '--idempotency-key', 'i')
    same = postroom.ok('enqueue', 't', '{"a":1}', '--tenant', TENANT, '--idempotency-key', 'i')
    line = f'OUTBOX_WORKER_DUPLICATE tenant={TENANT} key={TENANT}/i'
    assert same.err.startswith(line) and 'differs' not in same.err
    other = postroom.ok('enqueue', 't', '{"a":2}', '--tenant', TENANT, '--idempotency-key', 'i',
                        '--log-level', 'warn')
    assert other.err.startswith(line) and 'differs=yes' in other.err
    assert postroom.ok('enqueue', 't', '{"a":1}', '--tenant', TENANT, '--idempotency-key', 'i',
                       '--log-level', 'warn').err == ''


def E4_a_dedupe_key_begins_with_its_tenant(postroom, db):
    line = postroom.fails(1, 'enqueue', 't', '{}', '--tenant', TENANT, '--dedupe-key', 'abc')
    assert f'{TENANT}/' in line and not db.exists()
    postroom.enqueue('t', '{}', '--tenant', TENANT, '--dedupe-key', TENANT.replace('-', '') + '/abc')


def I1_identity_gives_the_key_that_the_key_command_prints(postroom):
    for identity, parts in (('order:17:created', ['order', '17', 'created']),
                            ('order:17:created:3', ['order', '17', 'created', '3']),
                            ('isbn:urn:isbn:1:listed:0', ['isbn', 'urn:isbn:1', 'listed'])):
        key = postroom.ok('key', TENANT, *parts).out.strip()
        receipt = postroom.ok('enqueue', 't', '{}', '--tenant', TENANT, '--identity', identity,
                              '--json').object
        assert receipt['dedupe_key'] == f'{TENANT}/{key}'
    key = postroom.ok('key', '', 'order', '17', 'created').out.strip()
    assert postroom.ok('enqueue', 't', '{}', '--identity', 'order:17:created',
                       '--json').object['dedupe_key'] == key


def I1_malformed_identity_is_a_usage_error(postroom):
    for identity in ('', 'order', 'order:17'):
        assert 'CATEGORY:ENTITY:KIND' in postroom.fails(2, 'enqueue', 't', '{}', '--identity',
                                                        identity)


def I3_kinds_of_key_exclude_each_other(postroom):
    assert 'exclude' in postroom.fails(2, 'enqueue', 't', '{}', '--identity', 'a:b:c',
                                       '--dedupe-key', 'd')


def I2_a_key_counts_within_its_tenant(postroom):
    receipts = [postroom.ok('enqueue', 't', '{}', '--tenant', tenant, '--idempotency-key', 'i',
                            '--json').object for tenant in (TENANT, OTHER, TENANT)]
    assert [receipt['duplicate'] for receipt in receipts] == [False, False, True]
    assert receipts[1]['dedupe_key'] == f'{OTHER}/i'


def I4_the_answer_is_id_key_and_duplicate(postroom):
    receipt = postroom.ok('enqueue', 't', '{}', '--json').object
    assert list(receipt) == ['id', 'dedupe_key', 'duplicate']
    assert re.fullmatch(UUID7, receipt['id'])
    assert receipt['dedupe_key'] is None and receipt['duplicate'] is False
    assert re.fullmatch(UUID7 + '\n', postroom.ok('enqueue', 't', '{}').out)


def I4_closed_stdout_is_reported_and_the_message_stays_enqueued(postroom):
    reader, writer = os.pipe()
    os.close(reader)
    for args in (['enqueue', 't', '{}'], ['enqueue', 't', '{}', '--json']):
        result = postroom(*args, stdout=writer)
        assert result.code == 1
        assert result.err == ('postroom: enqueue: the message was written, but cannot write to '
                              'standard output: Broken pipe\n')
    os.close(writer)
    assert len(postroom.rows()) == 2


def Z1_missing_stdout_is_reported_and_never_becomes_the_database(postroom, db):
    command = [sys.executable, '-c',
               'import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])']
    from conftest import PROGRAM
    done = subprocess.run([*command, PROGRAM, 'enqueue', 't', '{}'], stderr=subprocess.PIPE,
                          env=postroom.environment(), cwd=postroom.cwd)
    assert done.returncode == 1 and b'standard output' in done.stderr
    assert len(postroom.rows()) == 1
