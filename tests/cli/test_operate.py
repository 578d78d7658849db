# SPDX-License-Identifier: Apache-2.0
"""Filters, groups, dry runs and the history of attempts, of messages and of the inbox."""
import getpass
import json
import re
import signal

import pytest

from conftest import PATIENCE, wait_until

COUNTERS = ('fingerprint', 'example_error', 'topic', 'sink', 'count', 'first_at', 'last_at', 'example_id')


def kill(sql, id, error):
    sql("UPDATE postroom_outbox SET status = 'dead', state = 'dead', attempts = 3, claims = 3, last_error = ? WHERE id = ?",
        error, id)
    return id


def ids(postroom, *args):
    return [row['id'] for row in postroom.ok('list', '--json', *args).objects]


def X1_list_filters_by_error_and_time(postroom, sql):
    old = kill(sql, postroom.enqueue('a', '{}'), 'Connection refused by 10.0.0.1')
    sql('UPDATE postroom_outbox SET created_at = created_at - 7200000000, next_attempt_at = next_attempt_at - 7200000000')
    new = kill(sql, postroom.enqueue('b', '{}'), 'no such user 17')
    assert ids(postroom, '--error', 'connection REFUSED') == [old]
    assert ids(postroom, '--since', '1h') == [new]
    assert ids(postroom, '--until', '1h') == [old]
    assert ids(postroom, '--since', '3h', '--until', '1h', '--status', 'dead') == [old]
    assert ids(postroom, '--since', '2999-01-01T00:00:00Z') == []
    assert ids(postroom, '--since', '1999-01-01T00:00:00+02:00', '--error', 'user') == [new]
    assert 'dead=1 ' in postroom.ok('stats', '--error', 'user').out


@pytest.mark.parametrize('when', ['yesterday', '2026-02-30T00:00:00Z', '2026-11-15', '-1h', ''])
def X1_invalid_time_is_refused(postroom, when):
    postroom.enqueue('a', '{}')
    done = postroom('list', f'--since={when}')
    assert done.code == 2 and '--since takes a duration' in done.err


def X1_dead_messages_are_grouped_by_cause(postroom, sql):
    for number in range(3):
        newest = kill(sql, postroom.enqueue('a', '{}'), f'HTTP 503 after {number} ms')
    kill(sql, postroom.enqueue('b', '{}'), 'at 0x7f')
    groups = postroom.ok('list', '--status', 'dead', '--group-by', 'error', '--json').objects
    assert [tuple(group) for group in groups] == [COUNTERS] * 2
    assert (groups[0]['fingerprint'], groups[0]['count']) == ('HTTP <n> after <n> ms', 3)
    assert (groups[0]['example_id'], groups[0]['example_error']) == (newest, 'HTTP 503 after 2 ms')
    assert groups[1]['fingerprint'] == 'at <hex>' and groups[1]['sink'] == '<none>'
    assert len(ids(postroom, '--sink', '<none>')) == 4 and ids(postroom, '--sink', 'bus') == []
    assert postroom.ok('list', '--status', 'dead', '--group-by', 'error').lines[0].startswith('3\ta\t')
    assert postroom('list', '--group-by', 'error').code == 2


def X2_a_dry_run_counts_and_changes_nothing(postroom, sql):
    for topic in 'aab':
        kill(sql, postroom.enqueue(topic, '{}'), 'timeout')
    before = sql('SELECT * FROM postroom_outbox')
    assert postroom.ok('retry', '--dead', '--topic', 'a', '--dry-run').out == '2 messages would be changed\n'
    assert postroom.ok('retry', '--dead', '--dry-run', '--json').object == {'matched': 3}
    done = postroom.ok('purge', '--status', 'dead', '--error', 'TIME', '--dry-run', '--json')
    assert done.object == {'matched': 3} and 'OPERATOR_ACTION' not in done.err
    assert sql('SELECT * FROM postroom_outbox') == before
    assert postroom('retry', 'x', '--dry-run').code == 2


def X2_every_action_of_an_operator_is_logged(postroom, sql):
    id = kill(sql, postroom.enqueue('a', '{}'), 'timeout')
    kill(sql, postroom.enqueue('b', '{}'), 'refused')
    actor = f'actor={getpass.getuser()} '
    one = postroom.ok('retry', id).err
    assert f'OUTBOX_OPERATOR_ACTION action=retry filter="table=outbox id={id}" count=1 {actor}' in one
    many = postroom.ok('purge', '--status', 'dead', '--error', 'refused', '--yes').err
    assert f'action=purge filter="table=outbox status=dead error=refused" count=1 {actor}' in many
    assert many.count('OPERATOR_ACTION') == 1


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('table, args, change', [
    ('outbox', ('purge', '--status', 'dead', '--yes', '--json'), 'purged'), ('outbox', ('retry', '--dead', '--json'), 'retried'),
    ('inbox', ('inbox', 'purge', '--status', 'dead', '--json'), 'purged'), ('inbox', ('inbox', 'retry', '--dead', '--json'), 'retried')])
def X2_interrupted_action_logs_the_number_of_changed_rows(postroom, sql, how, table, args, change):
    postroom.ok('migrate')
    columns, values = ('topic, payload', "'t', '{}'") if table == 'outbox' else ('id, handler_name', "i, 'h'")
    sql('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO '
        f"postroom_{table} ({columns}, status, state) SELECT {values}, 'dead', 'dead' FROM n")

    # Each step takes a while, so that the signal comes before the last one.
    for event in ('UPDATE', 'DELETE'):
        sql(f'CREATE TRIGGER slow_{event} AFTER {event} ON postroom_{table} BEGIN SELECT hex(randomblob(200000)); END')

    def left():
        return sql(f"SELECT count(*) FROM postroom_{table} WHERE status = 'dead'")[0][0]
    process = postroom.start(*args)
    wait_until(lambda: left() < 20000, 'the first step')
    process.send_signal(how)
    out, err = process.communicate(timeout=PATIENCE)
    done = 20000 - left()
    assert 0 < done < 20000
    assert (process.returncode, json.loads(out)) == (1, {change: done})
    assert f'count={done} actor=' in err.decode() and err.count(b'OPERATOR_ACTION') == 1
    assert b'interrupted; the others are unchanged' in err


@pytest.mark.parametrize('args', [('list',), ('retry', '--dead'), ('purge', '--status', 'dead'), ('inbox', 'list'),
                                  ('inbox', 'retry', '--dead'), ('inbox', 'purge', '--status', 'dead')], ids=' '.join)
def X1_empty_part_of_an_error_or_sink_is_refused(postroom, sql, args):
    kill(sql, postroom.enqueue('a', '{}'), 'timeout')
    assert '--error takes a part of an error' in postroom.fails(2, *args, '--error', '')
    assert '--sink takes the name of a sink or <none>' in postroom.fails(2, *args, '--sink', '')
    assert postroom.stats()['dead'] == 1


def X1_show_has_the_failed_attempts(postroom):
    id = postroom.enqueue('a', '{}')
    postroom('relay', '--drain', '--to', 'exec:echo boom >&2; exit 1', '--max-attempts', '2', '--base-delay', '1ms')
    log = postroom.show(id)['attempts_log']
    assert [entry['number'] for entry in log] == [1, 2]
    assert all(set(entry) == {'number', 'at', 'duration_ms', 'worker', 'sink', 'error'} for entry in log)
    assert all(entry['sink'] == 'exec' and 'boom' in entry['error'] and entry['duration_ms'] >= 0 for entry in log)
    text = postroom.ok('show', id).out
    assert len(re.findall(r'^attempt +\d at .*: exit status 1: boom$', text, re.MULTILINE)) == 2


def N4_the_inbox_has_the_same_options(postroom, sql):
    for number in range(2):
        postroom.ok('inbox', 'submit', 'h', f'c-{number}')
    sql("UPDATE postroom_inbox SET status = 'dead', state = 'dead', last_error = 'timeout ' || id")
    rows = postroom.ok('inbox', 'list', '--error', 'C-1', '--since', '1h', '--json').objects
    assert [row['id'] for row in rows] == ['c-1']
    group = postroom.ok('inbox', 'list', '--status', 'dead', '--group-by', 'error', '--json').object
    assert (group['fingerprint'], group['handler'], group['sink'], group['count']) == ('timeout c-<n>', 'h', '<none>', 2)
    assert postroom.ok('inbox', 'retry', '--dead', '--sink', 'bus', '--dry-run', '--json').object == {'matched': 0}
    assert postroom.ok('inbox', 'retry', '--dead', '--error', 'c-0', '--dry-run', '--json').object == {'matched': 1}
    done = postroom.ok('inbox', 'retry', '--dead', '--error', 'c-0', '--json')
    assert done.object == {'retried': 1}
    assert 'action=retry filter="table=inbox status=dead error=c-0" count=1' in done.err
    assert postroom.ok('inbox', 'show', 'h', 'c-1', '--json').object['attempts_log'] == []
    assert postroom.ok('inbox', 'purge', '--status', 'dead', '--until', '0s', '--yes', '--json').object == {'purged': 1}
