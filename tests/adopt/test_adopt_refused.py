# SPDX-License-Identifier: Apache-2.0
"""postroom adopt on PostgreSQL refuses what it cannot adopt, says why, and changes nothing."""
import signal

import pytest

from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures
from pgsql.test_pgbouncer import TOOL, Bouncer

PLAIN = '(id int PRIMARY KEY, topic text, payload jsonb, sent_at timestamptz)'
OBJECTS = "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_trigger)"
# name: statements, arguments after the table t, words of the error.
REFUSED = {
    'no table': ([], [], 'there is no table t'),
    'name in another case': ([f'CREATE TABLE "T" {PLAIN}'], [], 'did you mean "public.T"?'),
    'view': ([f'CREATE TABLE s {PLAIN}', 'CREATE VIEW t AS SELECT * FROM s'], [], 'is a view or a foreign table'),
    'partition': ([f'CREATE TABLE s {PLAIN} PARTITION BY RANGE (id)', 'CREATE TABLE t PARTITION OF s DEFAULT'], [], 'is a partition'),
    'parent': ([f'CREATE TABLE t {PLAIN}', 'CREATE TABLE child () INHERITS (t)'], [], 'other tables inherit from t'),
    'no key': (['CREATE TABLE t (id int, topic text, payload jsonb, sent_at timestamptz)'], [], 'no primary key'),
    'key with NULL': (['CREATE TABLE t (id int UNIQUE, topic text, payload jsonb, sent_at timestamptz)'], [], 'no primary key'),
    'no topic': (['CREATE TABLE t (id int PRIMARY KEY, payload jsonb, sent_at timestamptz)'], [], '--column topic='),
    'no marker': (['CREATE TABLE t (id int PRIMARY KEY, topic text, payload jsonb)'], [], '--column done='),
    'two topics': ([f'CREATE TABLE t {PLAIN.replace("topic text", "event_type text, type text")}'], [], 'event_type, type'),
    'no such column': ([f'CREATE TABLE t {PLAIN}'], ['--column', 'key=order_id'], 'no such column'),
    'no such part': ([f'CREATE TABLE t {PLAIN}'], ['--column', 'topik=topic'], 'OURS is one of: id, '),
    'no such preset': ([f'CREATE TABLE t {PLAIN}'], ['--preset', 'debesium'], 'the presets are debezium, '),
    'preset of another layout': ([f'CREATE TABLE t {PLAIN}'], ['--preset', 'debezium'],
                                'the mapping does not fit public.t: '),
    'time without a zone': ([f'CREATE TABLE t {PLAIN.replace("topic", "created_at timestamp, topic")}'], [], 'such as --time-zone UTC'),
    'no such zone': ([f'CREATE TABLE t {PLAIN}'], ['--time-zone', 'Mars/Base'], 'does not know the time zone "Mars/Base"'),
    'status without open values': ([f'CREATE TABLE t {PLAIN.replace("sent_at timestamptz", "state text")}'], ['--column', 'done=state:sent'],
                                   '--column open=VALUE,VALUE'),
    'value that an enum lacks': (["CREATE TYPE state AS ENUM ('new', 'sent')", f'CREATE TABLE t {PLAIN.replace("sent_at timestamptz", "s state")}'],
                                 ['--column', 'done=s:done', '--column', 'open=new'], 'the mapping does not fit public.t: '),
    'generated marker': ([f'CREATE TABLE t {PLAIN[:-1]}, sent boolean GENERATED ALWAYS AS (sent_at IS NOT NULL) STORED)'],
                         ['--column', 'done=sent'], 'the column is generated'),
    'marker that is NOT NULL': ([f'CREATE TABLE t {PLAIN[:-1]} NOT NULL)'], ['--column', 'done=sent_at'], 'the column is NOT NULL'),
    'second marker that is NOT NULL': ([f'CREATE TABLE t {PLAIN[:-1]} NOT NULL, sent boolean)'], ['--column', 'done_at=sent_at'],
                                       'the column is NOT NULL'),
    'text as a time': ([f'CREATE TABLE t {PLAIN}'], ['--column', 'created_at=topic'], 'not a timestamp'),
}


@pytest.mark.parametrize('case', REFUSED)
def U2_table_that_cannot_be_adopted_is_refused(postroom, sql, case):  # noqa: F811
    statements, arguments, words = REFUSED[case]
    for statement in statements:
        sql(statement)
    before = sql(OBJECTS)
    for option in '--dry-run', '--yes':
        assert words in postroom.fails(1, 'adopt', 't', option, *arguments)
    assert sql(OBJECTS) == before


@pytest.mark.parametrize('option', ['--status', '--undo', '--dry-run'])
def U2_recorded_mapping_cannot_change(postroom, sql, option):  # noqa: F811
    sql(LAYOUT)
    assert option == '--dry-run' or 'is not adopted' in postroom.fails(1, 'adopt', 'outbox', option, '--yes')
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    assert 'another mapping' in postroom.fails(1, 'adopt', 'outbox', option, '--yes', '--column', 'topic=key')
    assert 'is a table of Postroom' in postroom.fails(1, 'adopt', 'postroom_outbox', option)


def U2_second_process_does_not_adopt_at_the_same_time(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT)
    holder = place.connect(database)
    holder.autocommit = False
    holder.cursor().execute("INSERT INTO outbox (topic, payload) VALUES ('a', '{}')")
    first = postroom.start('adopt', 'outbox', '--yes', *MAPPING)
    wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass"), 'adopt to wait')
    for options in ('--yes', *MAPPING), ('--undo', '--yes'):
        second = postroom('adopt', 'outbox', *options)
        assert second.code == 1 and 'another process is adopting public.outbox' in second.err, second
    holder.commit()
    assert first.wait() == 0
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def U2_signal_ends_the_wait_for_a_lock_and_nothing_is_lost(postroom, place, database, sql, number):  # noqa: F811
    sql(LAYOUT)
    holder = place.connect(database)
    holder.autocommit = False
    holder.cursor().execute("INSERT INTO outbox (topic, payload) VALUES ('a', '{}')")
    adopt = postroom.start('adopt', 'outbox', '--yes', *MAPPING)
    wait_until(lambda: sql("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass"), 'adopt to wait')
    adopt.send_signal(number)
    out, err = adopt.communicate()
    assert adopt.returncode == 1 and b'interrupted' in err and b'run the command again' in err, (out, err)
    holder.commit()
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]


def U2_undo_under_lane_leases_names_the_command_that_allows_it(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    sql("INSERT INTO outbox (topic, payload) VALUES ('a', '{}')")
    postroom.ok('lease', 'lane')
    assert 'run "postroom lease row" before --undo' in postroom('adopt', 'outbox', '--undo', '--yes').err
    assert sql("SELECT count(*) FROM outbox WHERE status = 'sent'") == [(1,)]
    postroom.ok('lease', 'row')
    assert postroom.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1


@pytest.mark.skipif(not TOOL, reason='pgbouncer is not installed')
def U2_pooler_is_refused(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT)
    bouncer = Bouncer(place)
    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        assert 'is behind a pooler' in postroom.fails(1, 'adopt', 'outbox', '--yes', *MAPPING)
    finally:
        bouncer.remove()
