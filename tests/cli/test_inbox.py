# SPDX-License-Identifier: Apache-2.0
"""inbox list, show, submit, retry, purge; and the recipe for every language on SQLite."""
import base64
import json
import re
import sqlite3
import subprocess
import threading

import pytest

from conftest import PATIENCE, ROOT, wait_until

COLUMNS = ['id', 'handler', 'seq', 'topic', 'key', 'tenant_id', 'correlation_id', 'status', 'payload',
           'body_base64', 'content_type',
           'headers', 'checkpoint', 'steps', 'attempts', 'claims',
           'next_attempt_at', 'locked_by', 'locked_until', 'last_attempt_at', 'last_error',
           'created_at', 'updated_at', 'processed_at']


def submit(postroom, handler, id, *args, **options):
    return postroom.ok('inbox', 'submit', handler, id, *args, '--json', **options).object


def entries(postroom, *args):
    return [(row['handler'], row['id']) for row in postroom.ok('inbox', 'list', '--json', *args).objects]


def make_dead(sql, id):
    sql("UPDATE postroom_inbox SET status = 'dead', attempts = 3, last_error = 'no' WHERE id = ?", id)


def N3_command_is_submitted_once_and_its_state_returned(postroom, sql):
    first = {'id': 'c-1', 'handler': 'invoices', 'status': 'pending', 'duplicate': False}
    assert submit(postroom, 'invoices', 'c-1', '{"n": 1}') == first
    assert submit(postroom, 'invoices', 'c-1', '{"n": 2}') == {**first, 'duplicate': True}
    sql("UPDATE postroom_inbox SET status = 'completed'")
    again = postroom.ok('inbox', 'submit', 'invoices', 'c-1')
    assert again.out == 'c-1 is already completed\n'
    assert re.search('INBOX_DUPLICATE handler=invoices id=c-1 status=completed', again.err)
    assert postroom.ok('inbox', 'show', 'invoices', 'c-1', '--json').object['payload'] == {'n': 1}
    assert postroom.ok('inbox', 'submit', 'invoices', 'c-2').out == 'c-2 is pending\n'


def N3_payload_is_read_from_stdin_or_omitted(postroom):
    submit(postroom, 'h', 'a', '-', input='{"n":\n1}\n')
    submit(postroom, 'h', 'b', input='{"n": 2}')
    rows = postroom.ok('inbox', 'list', '--json').objects
    assert [row['payload'] for row in rows] == [None, {'n': 1}]


@pytest.mark.parametrize('args, word', [
    (['h', ''], 'id must not be empty'), (['', 'c'], 'handler must not be empty'),
    (['h', 'x' * 10240], 'id is longer than 1024 bytes'),
    (['h' * 256, 'c'], 'handler is longer than 255 bytes'),
    (['a\nb', 'c'], 'control characters'), (['h', b'\xff'], 'UTF-8'),
    (['h', 'c', '{'], 'payload is not valid JSON'), (['h', 'c', ''], 'payload is not valid JSON'),
    (['h', 'c', '"\\u0000"'], 'payload is not valid JSON')])
def N3_bad_commands_are_refused(postroom, args, word):
    postroom.ok('migrate')
    args = [arg if isinstance(arg, str) else arg.decode('utf-8', 'surrogateescape') for arg in args]
    line = postroom.fails(1, 'inbox', 'submit', *args)
    assert line.startswith('inbox submit: ') and word in line
    assert entries(postroom) == []


def N3_a_bad_payload_on_stdin_is_refused(postroom):
    for bad, word in [(b'1\0', 'zero byte'), (b'', 'valid JSON'), (b'1' * (1 << 20) + b'1', 'larger')]:
        assert word in postroom.fails(1, 'inbox', 'submit', 'h', 'c', '-', input=bad)


def N4_the_inbox_is_listed_filtered_and_shown(postroom, sql):
    for handler, id in [('a', '1'), ('a', '2'), ('b', '1')]:
        submit(postroom, handler, id, '{}')
    make_dead(sql, '2')
    assert list(postroom.ok('inbox', 'list', '--json', '--limit', '1').object) == COLUMNS
    assert entries(postroom) == [('b', '1'), ('a', '2'), ('a', '1')]
    assert entries(postroom, '--handler', 'a') == [('a', '2'), ('a', '1')]
    assert entries(postroom, '--status', 'dead') == [('a', '2')]
    last = postroom.ok('inbox', 'list', '--json', '--limit', '2').objects[-1]
    assert entries(postroom, '--after', last['seq']) == [('a', '1')]
    line = postroom.ok('inbox', 'list', '--status', 'dead').out.rstrip('\n').split('\t')
    assert [*line[:4], line[5]] == ['2', 'a', 'dead', '3', 'no']
    assert [row['handler'] for row in postroom.ok('inbox', 'show', '1', '--json').objects] == ['b', 'a']
    shown = postroom.ok('inbox', 'show', 'a', '2').out
    assert re.search('^status +dead$', shown, re.M) and re.search('^payload +{}$', shown, re.M)
    assert postroom.fails(1, 'inbox', 'show', 'b', '2') == 'inbox show: there is no event 2 of handler b; `postroom inbox list` prints the ids'
    assert postroom.fails(1, 'inbox', 'show', '9') == 'inbox show: there is no event 9; `postroom inbox list` prints the ids'


def N4_event_is_shown_with_all_its_attributes(postroom):
    line = {'id': 'e', 'topic': 'orders', 'key': 'k', 'headers': {'a': 'b'}, 'content_type': 'text/plain',
            'body_base64': base64.b64encode(b'no JSON').decode()}
    postroom.ok('consume', '--handler', 'h', '--from', '-', '--exec', 'exit 65', input=json.dumps(line))
    row = postroom.ok('inbox', 'list', '--status', 'dead', '--json').object
    assert {name: row[name] for name in line} == line and row['payload'] is None
    shown = postroom.ok('inbox', 'show', 'h', 'e').out
    for field in ['topic +orders', 'key +k', 'content_type +text/plain', 'headers +{"a": ?"b"}', 'body_bytes +7']:
        assert re.search(f'^{field}$', shown, re.M)


def N4_dead_events_are_retried(postroom, sql):
    for id in ('1', '2', '3', '4'):
        submit(postroom, 'h', id)
    for id in ('1', '2', '3'):
        make_dead(sql, id)
    result = postroom('inbox', 'retry', 'h', '1', '4', '9')
    assert result.code == 1 and result.out == '1 is pending again\n'
    assert [line for line in result.err.splitlines() if line.startswith('postroom: ')] == [
        'postroom: inbox retry: 4 is pending at h; only dead rows can be retried',
        'postroom: inbox retry: there is no event 9 of handler h; `postroom inbox list` prints the ids']
    assert postroom.ok('inbox', 'retry', '--dead', '--handler', 'other', '--json').object == {'retried': 0}
    assert postroom.ok('inbox', 'retry', '--dead').out == '2 pending again\n'
    assert postroom.stats()['inbox']['pending'] == 4


def N4_finished_events_are_purged(postroom, sql):
    for id in ('1', '2', '3'):
        submit(postroom, 'h', id)
    make_dead(sql, '1')
    sql("UPDATE postroom_inbox SET status = 'completed' WHERE id = '2'")
    purge = ['inbox', 'purge', '--json', '--yes', '--status']
    assert postroom.ok(*purge, 'completed', '--older-than', '1h').object == {'purged': 0}
    assert postroom.ok(*purge, 'completed', '--handler', 'g').object == {'purged': 0}
    assert postroom.ok(*purge, 'completed').object == {'purged': 1}
    assert entries(postroom) == [('h', '3'), ('h', '1')]
    assert postroom.ok('inbox', 'purge', '--status', 'dead').out == '1 deleted\n'
    assert entries(postroom) == [('h', '3')]


def N4_stats_count_the_inbox(postroom, sql):
    postroom.ok('migrate')
    assert postroom.stats()['inbox'] == {'pending': 0, 'active': 0, 'completed': 0, 'dead': 0, 'handlers': []}
    for handler, id in [('a', '1'), ('a', '2'), ('b', '1')]:
        submit(postroom, handler, id)
    make_dead(sql, '2')
    assert postroom.stats()['inbox'] == {
        'pending': 2, 'active': 0, 'completed': 0, 'dead': 1, 'handlers': [
            {'handler': 'a', 'pending': 1, 'active': 0, 'completed': 0, 'dead': 1},
            {'handler': 'b', 'pending': 1, 'active': 0, 'completed': 0, 'dead': 0}]}


@pytest.mark.parametrize('args, word', [
    (['frob'], 'unknown action frob'), (['submit', 'h'], 'inbox submit HANDLER ID [PAYLOAD]'),
    (['submit', 'h', 'c', '1', '2'], 'number of arguments'), (['list', 'x'], 'number of arguments'),
    (['show'], 'inbox show [HANDLER] ID'), (['list', '--dead'], '--dead'),
    (['submit', 'h', 'c', '--status', 'dead'], '--status'), (['list', '--status', 'delivered'], 'completed'),
    (['retry'], '--dead'), (['retry', 'h'], 'HANDLER ID'), (['retry', 'h', 'c', '--dead'], 'either'),
    (['retry', 'h', 'c', '--handler', 'h'], '--handler'), (['purge'], '--status completed'),
    (['purge', '--status', 'pending'], 'never deleted')])
def test_usage_error_shows_the_synopsis(postroom, args, word):
    postroom.ok('migrate')
    assert word in postroom.fails(2, 'inbox', *args)


def N3_only_submit_creates_a_database(postroom, db):
    for action in (['list'], ['show', 'c'], ['retry', '--dead'], ['purge', '--status', 'dead', '--yes']):
        assert 'outbox.db' in postroom.fails(1, 'inbox', *action)
        assert not db.exists()
    submit(postroom, 'h', 'c')
    assert db.exists()


def N4_relay_purges_old_completed_events(postroom, sql):
    submit(postroom, 'h', 'pending')
    for id, age in [('new', 0), ('old', 31 * 86400)]:
        sql("INSERT INTO postroom_inbox (id, handler_name, status) VALUES (?, 'h', 'completed')", id)
        sql('UPDATE postroom_inbox SET updated_at = updated_at - ? * 1000000 WHERE id = ?', age, id)
    relay = postroom.start('relay', '--to', 'null:', stderr=subprocess.DEVNULL)
    wait_until(lambda: entries(postroom) == [('h', 'new'), ('h', 'pending')], 'the old one to go')
    relay.terminate()
    assert relay.wait() == 0
    relay = postroom.start('relay', '--to', 'null:', '--inbox-retention', '1ms', stderr=subprocess.DEVNULL)
    wait_until(lambda: entries(postroom) == [('h', 'pending')], 'the new one to go')
    relay.terminate()
    assert relay.wait() == 0


RECIPE = """INSERT INTO postroom_inbox (id, handler_name, status)
VALUES (?, ?, 'completed') ON CONFLICT DO NOTHING"""


def handle(db, id):
    """A consumer as docs/inbox.md writes it; whether it was the first."""
    db.execute('BEGIN IMMEDIATE')
    first = db.execute(RECIPE, (id, 'ledger')).rowcount == 1
    if first:
        db.execute('INSERT INTO ledger VALUES (?)', (id,))
    return first


def N2_sqlite_recipe_works_from_any_language(postroom, db, sql):
    postroom.ok('migrate')
    sql('CREATE TABLE ledger (id TEXT)')
    one = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
    assert handle(one, 'e')
    one.execute('ROLLBACK')
    assert handle(one, 'e')
    one.execute('COMMIT')
    assert not handle(one, 'e')
    one.execute('COMMIT')
    # While the first is undecided the second waits, and takes over.
    answers = []
    assert handle(one, 'f')

    def second():
        other = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
        answers.append(handle(other, 'f'))
        other.execute('COMMIT')
        other.close()
    thread = threading.Thread(target=second)
    thread.start()
    one.execute('ROLLBACK')
    thread.join()
    assert answers == [True]
    assert sql('SELECT id FROM ledger ORDER BY id') == [('e',), ('f',)]
    row = postroom.ok('inbox', 'show', 'ledger', 'e', '--json').object
    assert row['status'] == 'completed' and row['processed_at'] == row['updated_at']
    one.close()


def N2_tested_recipe_equals_the_documented_one():
    text = (ROOT / 'docs' / 'inbox.md').read_text(encoding='utf-8')
    assert ' '.join(RECIPE.split()) in ' '.join(text.split())
