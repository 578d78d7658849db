# SPDX-License-Identifier: Apache-2.0
"""list, show, retry, purge, stats: what the operator sees and does."""
import re

import pytest

from conftest import wait_until

COLUMNS = ['id', 'seq', 'namespace', 'topic', 'tenant_id', 'key', 'dedupe_key', 'correlation_id',
           'payload', 'body_base64', 'content_type', 'headers', 'status', 'attempts', 'claims',
           'next_attempt_at', 'locked_by', 'locked_until', 'last_attempt_at', 'last_error',
           'created_at', 'updated_at', 'delivered_at']
FIGURES = ['pending', 'processing', 'failed_pending', 'delivered', 'dead', 'backlog',
           'oldest_age_seconds']
TENANT = '6f1c2a34-9b0d-4e5f-8a7b-1c2d3e4f5a6b'


def make_dead(postroom, *args):
    """Everything that is pending becomes dead."""
    postroom.ok('relay', '--to', 'exec:echo no such order >&2; exit 65', '--drain', *args)


def X1_list_json_prints_rows_with_every_column(postroom):
    postroom.enqueue('t', '{"a":1}')
    row = postroom.ok('list', '--json').object
    assert list(row) == COLUMNS
    for name in ('created_at', 'updated_at', 'next_attempt_at'):
        assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', row[name])
    assert row['delivered_at'] is None and row['locked_until'] is None


def X1_list_json_is_one_object_per_line(postroom):
    postroom.enqueue('t', '{"a":\n[1,\r\n2]}')
    assert postroom.ok('list', '--json').object['payload'] == {'a': [1, 2]}


def X1_list_in_a_pipe_is_tab_separated(postroom):
    id = postroom.enqueue('orders.created', '{}', '--key', 'a\tb\n\x1b[31m')
    fields = postroom.ok('list').out.removesuffix('\n').split('\t')
    assert [*fields[:3], *fields[4:]] == [id, 'pending', '0', 'orders.created', r'a\tb\n\x1b[31m', '']


def X1_list_applies_its_filters(postroom):
    a = postroom.enqueue('orders.created', '{}', '--namespace', 'shop', '--key', 'k1')
    b = postroom.enqueue('orders.paid.late', '{}', '--tenant', TENANT)
    c = postroom.enqueue('mail', '{}', '--key', 'k1')

    def listed(*args):
        return [row['id'] for row in postroom.rows(*args)]
    assert listed() == [c, b, a]
    assert listed('--topic', 'orders.*') == [b, a]
    assert listed('--topic', '*') == [c, b, a]
    assert listed('--topic', 'orders') == []
    assert listed('--namespace', 'shop') == [a]
    assert listed('--tenant', TENANT.upper()) == [b]
    assert listed('--key', 'k1') == [c, a]
    assert listed('--key', 'k1', '--topic', 'mail') == [c]
    assert listed('--status', 'pending') == [c, b, a]
    assert listed('--status', 'delivered') == []


def X1_list_continues_after_an_id(postroom):
    ids = [postroom.enqueue() for _ in range(5)]
    pages, after = [], []
    while page := [row['id'] for row in postroom.ok('list', '--json', '--limit', 2, *after).objects]:
        pages += page
        after = ['--after', page[-1]]
    assert pages == ids[::-1]
    assert 'no message' in postroom.fails(1, 'list', '--after', 'unknown')


def X1_list_of_an_empty_outbox_is_empty(postroom):
    postroom.ok('migrate')
    assert postroom.ok('list').out == '' and postroom.ok('list', '--json').out == ''


def X1_closed_stdout_of_list_is_one_error_line(postroom):
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"t","payload":1}\n' * 5000)
    for args in (['list', '--limit', '5000'], ['list', '--limit', '5000', '--json']):
        process = postroom.start(*args)
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate()
        assert process.returncode == 1
        assert err == b'postroom: cannot write to standard output: Broken pipe\n'


def X1_show_prints_every_field(postroom):
    id = postroom.enqueue('orders.created', '{ "order": 17 }', '--key', 'o-17', '--header', 'a=b')
    text = postroom.ok('show', id).out
    for name, value in (('id', id), ('status', 'pending'), ('topic', 'orders.created'),
                        ('key', 'o-17'), ('headers', '{"a":"b"}'), ('attempts', '0')):
        assert re.search(rf'^{name} +{re.escape(value)}$', text, re.MULTILINE), name
    assert text.endswith('\n\n{ "order": 17 }\n')
    assert list(postroom.show(id)) == COLUMNS + ['attempts_log']


def X1_show_of_an_unknown_message_fails(postroom):
    postroom.enqueue()
    for id in ('unknown', '', '00000000-0000-7000-8000-000000000000'):
        assert 'no message' in postroom.fails(1, 'show', id)


def X1_dead_messages_are_listed_and_inspected(postroom):
    dead = postroom.enqueue('orders.created', '{"order":17}')
    make_dead(postroom)
    alive = postroom.enqueue()
    assert [row['id'] for row in postroom.rows('--status', 'dead')] == [dead]
    assert 'no such order' in postroom.show(dead)['last_error']
    assert 'no such order' in postroom.ok('show', dead).out
    assert [row['id'] for row in postroom.rows('--status', 'pending')] == [alive]


def X1_retry_resets_attempts_moves_to_the_end_and_keeps_the_error(postroom):
    dead = postroom.enqueue('t', '{}', '--key', 'k')
    make_dead(postroom)
    postroom.enqueue('t', '{}', '--key', 'k')
    assert postroom.ok('retry', dead).out == f'{dead} is pending again\n'
    row = postroom.rows()[0]
    assert row['id'] == dead and row['status'] == 'pending' and row['attempts'] == 0
    assert 'no such order' in row['last_error']
    postroom.ok('relay', '--to', 'null:', '--drain')
    assert postroom.show(dead)['status'] == 'delivered'


def X1_retry_of_other_than_dead_letter_fails(postroom):
    pending = postroom.enqueue()
    assert 'pending' in postroom.fails(1, 'retry', pending)
    assert 'no message' in postroom.fails(1, 'retry', 'unknown')
    postroom.ok('relay', '--to', 'null:', '--drain')
    assert 'delivered' in postroom.fails(1, 'retry', pending)
    assert postroom.show(pending)['status'] == 'delivered'


def X1_retry_of_several_retries_only_dead_letters(postroom):
    ids = [postroom.enqueue() for _ in range(2)]
    make_dead(postroom)
    result = postroom('retry', ids[0], 'unknown', ids[1], '--json')
    errors = [line for line in result.err.splitlines() if line.startswith('postroom: ')]
    assert result.code == 1 and len(errors) == 1 and 'unknown' in errors[0]
    assert result.objects == [{'id': id, 'status': 'pending'} for id in ids]
    assert len(postroom.rows('--status', 'pending')) == 2


def X1_all_dead_letters_are_retried_by_filter(postroom, sql):
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"a","payload":1}\n' * 1200)
    postroom.enqueue('b', '{}', '--namespace', 'shop', '--tenant', TENANT)
    sql("UPDATE postroom_outbox SET status = 'dead', attempts = 10, last_error = 'no'")
    for args, count in ((['--namespace', 'default', '--topic', 'b'], 0), (['--tenant', TENANT], 1),
                        (['--topic', 'a*'], 1200), ([], 0)):
        assert postroom.ok('retry', '--dead', '--json', *args).object == {'retried': count}
    assert sql('SELECT DISTINCT status, attempts, last_error FROM postroom_outbox') == \
        [('pending', 0, 'no')]
    assert postroom.ok('retry', '--dead').out == '0 messages are pending again\n'


def X1_retry_needs_ids_or_dead_but_not_both(postroom):
    assert '--dead' in postroom.fails(2, 'retry')
    assert '--dead' in postroom.fails(2, 'retry', 'x', '--dead')
    assert '--dead' in postroom.fails(2, 'retry', 'x', '--topic', 't')


def X1_purge_deletes_dead_letters_by_filter(postroom):
    keep, drop = postroom.enqueue('a'), postroom.enqueue('b')
    make_dead(postroom)
    pending = postroom.enqueue('b')
    assert postroom.ok('purge', '--status', 'dead', '--topic', 'b').out == '1 dead message deleted\n'
    assert {row['id'] for row in postroom.rows()} == {keep, pending}
    assert drop not in {row['id'] for row in postroom.rows()}
    assert postroom.ok('purge', '--status', 'dead', '--json').object == {'purged': 1}


def X2_age_out_of_range_is_refused(postroom):
    postroom.enqueue()
    postroom.ok('relay', '--to', 'null:', '--drain', '--log-level', 'warn')
    for command in (['purge', '--status', 'delivered'], ['inbox', 'purge', '--status', 'completed']):
        assert '--older-than' in postroom.fails(2, *command, '--older-than', '110000000d', '--yes')
        postroom.ok(*command, '--older-than', '36525d', '--yes')
    assert len(postroom.rows()) == 1


def X2_purge_deletes_old_delivered_messages(postroom, sql):
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"t","payload":1}\n' * 1234)
    postroom.ok('relay', '--to', 'null:', '--drain', '--log-level', 'warn')
    assert postroom.ok('purge', '--status', 'delivered', '--older-than', '1h').out == \
        '0 delivered messages deleted\n'
    sql('UPDATE postroom_outbox SET delivered_at = delivered_at - 3600000000 WHERE seq > 34')
    assert postroom.ok('purge', '--status', 'delivered', '--older-than', '1h').out == \
        '1200 delivered messages deleted\n'
    assert len(postroom.rows()) == 34


def X2_purge_ignores_messages_delivered_after_it_began(postroom, sql):
    """Or it would never end beside a busy relay."""
    postroom.ok('enqueue', '--ndjson', '-', input='{"topic":"t","payload":1}\n' * 15_000)
    postroom.ok('relay', '--to', 'null:', '--drain', '--log-level', 'warn')
    # A tenth of a second, which the first steps take: no process is that late between two lines.
    sql('CREATE TRIGGER more AFTER DELETE ON postroom_outbox WHEN OLD.seq <= 500 '
        'BEGIN INSERT INTO postroom_outbox (topic, payload, status, delivered_at) '
        "VALUES ('more', '1', 'delivered', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) "
        '+ 100000); END')
    assert postroom.ok('purge', '--status', 'delivered').out == '15000 delivered messages deleted\n'
    assert {row['topic'] for row in postroom.rows()} == {'more'}


def X2_purge_needs_a_status_and_never_deletes_unfinished_messages(postroom):
    postroom.enqueue()
    assert '--status' in postroom.fails(2, 'purge')
    for status in ('pending', 'processing', 'any', ''):
        assert 'delivered or dead' in postroom.fails(2, 'purge', '--status', status)
    assert len(postroom.rows()) == 1


def X1_stats_are_exact(postroom):
    postroom.enqueue('a', '{}', '--namespace', 'shop')
    make_dead(postroom)
    postroom.enqueue('a')
    postroom.ok('relay', '--to', 'null:', '--drain')
    postroom.enqueue('a')
    postroom.enqueue('b', '{}', '--delay', '1h')
    stats = postroom.stats()
    assert list(stats) == [*FIGURES, 'unrouted', 'topics', 'inbox']
    assert [stats[name] for name in FIGURES[:6]] == [2, 0, 0, 1, 1, 2]
    assert stats['oldest_age_seconds'] >= 0
    topics = {(topic['namespace'], topic['topic']): topic for topic in stats['topics']}
    assert set(topics) == {('default', 'a'), ('default', 'b'), ('shop', 'a')}
    assert list(topics['shop', 'a']) == ['namespace', 'topic', *FIGURES]
    assert topics['shop', 'a']['dead'] == 1 and topics['shop', 'a']['oldest_age_seconds'] is None
    assert topics['default', 'a']['backlog'] == 1 and topics['default', 'b']['pending'] == 1


def X1_stats_of_an_empty_database_are_zero_and_null(postroom):
    postroom.ok('migrate')
    assert list(postroom.stats().values())[:-1] == [0, 0, 0, 0, 0, 0, None, None, []]
    assert postroom.ok('stats').out == ('pending=0 processing=0 failed_pending=0 delivered=0 '
                                        'dead=0 backlog=0 oldest_age_seconds=\n')


def X1_stats_count_failed_messages_to_be_retried(postroom):
    postroom.enqueue()
    relay = postroom.start('relay', '--to', 'exec:exit 1', '--base-delay', '1h', '--max-delay', '1h')
    wait_until(lambda: postroom.stats()['failed_pending'] == 1, 'the first failure')
    relay.terminate()
    assert relay.wait() == 0
    assert postroom.stats()['backlog'] == 1
    assert postroom.rows('--status', 'failed') == postroom.rows()


@pytest.mark.parametrize('args', [[], ['--json']])
def X1_stats_watch_in_a_pipe_prints_a_line_each_interval(postroom, args):
    postroom.ok('migrate')
    watch = postroom.start('stats', '--watch', '--interval', '50ms', *args)
    assert b'0' in watch.stdout.readline()
    postroom.enqueue()
    while not re.search(rb'pending"?[:=]1', watch.stdout.readline()):
        assert watch.poll() is None
    watch.stdout.close()
    watch.stdout = None
    _, err = watch.communicate()
    assert watch.returncode == 1 and b'Broken pipe' in err and err.count(b'\n') == 1
