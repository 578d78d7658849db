# SPDX-License-Identifier: Apache-2.0
"""postroom adopt on SQLite: row triggers that never fail a producer, and rows with one sender at any time."""
import re
import shlex
import sqlite3
import threading
import uuid

import pytest

from adopt.metrics import count_rejected
from adopt.test_adopt_undo import in_flight
from conftest import PATIENCE, wait_until
from doctor.examining import is_quiet, only, statements

LAYOUT = '''CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, key TEXT, payload TEXT, headers TEXT, tenant_id TEXT, dedupe_key TEXT,
    status TEXT NOT NULL DEFAULT 'pending', created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), published_at TEXT)'''
MAPPING = ('--column', 'done=status:sent', '--column', 'open=pending', '--column', 'tenant_id=tenant_id')
INSERT = "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')"
PENDING = "SELECT count(*) FROM outbox WHERE status = 'pending'"
OURS = 'SELECT count(*) FROM postroom_outbox'
REASONS = 'SELECT reason FROM postroom_adopt_rejects'
ID = '11111111-2222-4333-8444-555555555555'


@pytest.fixture
def table(postroom, sql):
    postroom.ok('migrate')
    sql(LAYOUT)


@pytest.fixture
def adopted(postroom, table):
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    return postroom


# name: DDL, table, columns and values of a row, options, parts of its message, what is open after it.
LAYOUTS = {
    'EF Core': (
        '''CREATE TABLE "OutboxMessages" ("Id" TEXT PRIMARY KEY NOT NULL, "Type" TEXT NOT NULL, "Content" TEXT NOT NULL, "OccurredOnUtc"
        TEXT NOT NULL, "ProcessedOnUtc" TEXT NULL, "Error" TEXT NULL)''', 'OutboxMessages',
        {'Id': ID.upper().replace('-8444-', '-ABCD-'), 'Type': 'OrderCreated', 'Content': '{"a": 1}', 'OccurredOnUtc': '2026-07-01 10:00:00.1234567'},
        ['--time-zone', 'UTC'], {'id': ID.replace('-8444-', '-abcd-'), 'topic': 'OrderCreated', 'payload': '{"a": 1}', 'created_at': 1782900000123000},
        '"ProcessedOnUtc" IS NULL'),
    'Prisma': (
        '''CREATE TABLE "Outbox" ("id" TEXT NOT NULL PRIMARY KEY, "eventType" TEXT NOT NULL, "aggregateId" TEXT, "payload" TEXT NOT NULL,
        "createdAt" DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, "publishedAt" DATETIME)''', 'Outbox',
        {'id': 'clh3v5q9g0000', 'eventType': 'order.created', 'aggregateId': '7', 'payload': '{"a": 1}', 'createdAt': 1782900000123}, [],
        {'topic': 'order.created', 'key': '7', 'created_at': 1782900000123000}, '"publishedAt" IS NULL'),
    'Rails': (
        '''CREATE TABLE outbox_items (id integer PRIMARY KEY AUTOINCREMENT NOT NULL, uuid varchar(36) NOT NULL, event_name varchar NOT NULL,
        payload blob NOT NULL, state integer DEFAULT 0 NOT NULL, created_at datetime(6) NOT NULL, processed_at datetime(6))''', 'outbox_items',
        {'uuid': ID, 'event_name': 'order.created', 'payload': b'\xff\x00', 'created_at': '2026-07-01 10:00:00.123456'},
        ['--time-zone', 'UTC', '--column', 'done=state:2', '--column', 'open=0', '--column', 'id=uuid'],
        {'id': ID, 'topic': 'order.created', 'body': b'\xff\x00', 'payload': 'null', 'content_type': 'application/octet-stream'}, 'state <> 2'),
    'SQLAlchemy': (
        '''CREATE TABLE outbox (id BLOB PRIMARY KEY, type VARCHAR(80) NOT NULL, data JSON NOT NULL, metadata JSON, processed BOOLEAN NOT NULL
        DEFAULT 0, created_at INTEGER NOT NULL)''', 'outbox',
        {'id': uuid.UUID(ID).bytes, 'type': 'order.created', 'data': '{"a": 1}', 'metadata': '{"n": 1.5, "b": true, "z": null, "s": "x\\"y"}',
         'created_at': 1782900000},
        ['--column', 'id=id'], {'id': ID, 'headers': '{"n":"1.5","b":"true","s":"x\\"y"}', 'created_at': 1782900000000000}, 'processed = 0'),
    'integer ids': (
        '''CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0)''', 'outbox',
        {'id': 255, 'topic': 'order.created', 'payload': '[]'}, [], {'topic': 'order.created', 'payload': '[]'}, 'sent = 0'),
}


@pytest.mark.parametrize('when', ['waiting', 'new'])
@pytest.mark.parametrize('layout', LAYOUTS)
def U2_row_of_a_layout_in_sqlite_is_delivered(postroom, sql, layout, when):
    ddl, table, row, options, expected, still_open = LAYOUTS[layout]
    postroom.ok('migrate')
    sql(ddl)
    columns = ', '.join(f'"{column}"' for column in row)
    def insert():
        sql(f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * len(row))})', *row.values())
    if when == 'waiting':
        insert()
    postroom.ok('adopt', table, '--yes', *options)
    if when == 'new':
        insert()
    found, = sql(f'SELECT {", ".join(expected)} FROM postroom_outbox')
    assert found == tuple(expected.values())
    assert sql(f'SELECT count(*) FROM "{table}" WHERE {still_open}') == [(0,)]
    # A second run uses the recorded mapping, and finds the message by the id of the row.
    postroom.ok('adopt', table, '--yes')
    status = postroom.ok('adopt', table, '--status', '--json').object
    assert (status['pending'], status['waiting'], sql(OURS)) == (1, 0, [(1,)])
    assert postroom.ok('relay', '--to', 'stdout:', '--drain').lines


def U2_ids_of_any_text_become_uuids_of_their_own(postroom, sql):
    postroom.ok('migrate')
    sql('CREATE TABLE outbox (id TEXT PRIMARY KEY, topic TEXT, payload TEXT, sent_at TEXT)')
    names = ['a', 'b', 'ab', 'ba', 'order/1', 'order/2', 'x' * 255, 'x' * 254 + 'y', '\U0010ffff' * 200, '7' * 300]
    for name in names:
        sql("INSERT INTO outbox VALUES (?, 'a', '{}', NULL)", name)
    postroom.ok('adopt', 'outbox', '--yes')
    ids = [uuid.UUID(id) for id, in sql('SELECT id FROM postroom_outbox')]
    assert len(set(ids)) == len(names) and {id.version for id in ids} == {8}
    assert postroom.ok('adopt', 'outbox', '--status', '--json').object['pending'] == len(names)


UNFIT = {
    'long topic': "(topic, payload) VALUES ('a' || replace(hex(zeroblob(300)), '0', 'x'), '{}')",
    'control character': "(topic, payload) VALUES ('a' || char(7), '{}')",
    'no topic': "(topic, payload) VALUES (NULL, '{}')",
    'no payload': "(topic, payload) VALUES ('a', NULL)",
    'no JSON': "(topic, payload) VALUES ('a', '{')",
    'bytes': "(topic, payload) VALUES ('a', x'ff00')",
    'NUL in JSON': """(topic, payload) VALUES ('a', '"\\u0000"')""",
    'half of a pair': """(topic, payload) VALUES ('a', '"\\ud800"')""",
    'headers are no JSON': "(topic, payload, headers) VALUES ('a', '{}', '{')",
    'headers are a list': "(topic, payload, headers) VALUES ('a', '{}', '[1]')",
    'control character in a header': """(topic, payload, headers) VALUES ('a', '{}', '{"a": "\\n"}')""",
    'tenant is no UUID': "(topic, payload, tenant_id) VALUES ('a', '{}', 'acme')",
    'long dedupe key': "(topic, payload, dedupe_key) VALUES ('a', '{}', hex(zeroblob(400)))",
    'long key': "(topic, payload, key) VALUES ('a', '{}', hex(zeroblob(600)))",
}


@pytest.mark.parametrize('how', ['INSERT', 'INSERT OR REPLACE', 'INSERT OR ROLLBACK', 'INSERT OR FAIL', 'INSERT OR IGNORE'])
@pytest.mark.parametrize('row', UNFIT.values(), ids=UNFIT)
def U2_unfit_row_never_fails_its_producer_in_sqlite(adopted, sql, row, how):
    sql(f'{how} INTO outbox {row}')
    sql(INSERT)
    assert (sql(PENDING), sql(OURS)) == ([(1,)], [(1,)])
    assert len(sql(REASONS)) == 1 and sql(REASONS)[0][0]
    # It is found again, and no other row with it.
    assert adopted.ok('adopt', 'outbox', '--yes', '--json').object == {'moved': 0, 'rejected': 1, 'locked': 0}


def U2_unfit_rows_of_the_backlog_stay_in_sqlite(postroom, sql, table):
    for row in UNFIT.values():
        sql(f'INSERT INTO outbox {row}')
        sql(INSERT)
    done = postroom.ok('adopt', 'outbox', '--yes', '--json', '--chunk', '3', '--column', 'payload=payload', *MAPPING).object
    assert done == {'moved': len(UNFIT), 'rejected': len(UNFIT), 'locked': 0}
    assert (sql(PENDING), sql(OURS)) == ([(len(UNFIT),)], [(len(UNFIT),)])


def U2_replaced_row_is_a_new_message_in_sqlite(adopted, sql):
    for payload in '1', '2':
        sql('INSERT OR REPLACE INTO outbox (id, topic, payload) VALUES (7, ?, ?)', 'a', payload)
    sql("INSERT INTO outbox (id, topic, payload) VALUES (7, 'a', '3') ON CONFLICT (id) DO UPDATE SET payload = '3', status = 'pending'")
    assert sql('SELECT payload FROM postroom_outbox ORDER BY seq') == [('1',), ('2',), ('3',)]
    assert sql('SELECT status FROM outbox') == [('sent',)]


def U2_duplicate_of_a_dedupe_key_is_done_in_sqlite(adopted, sql):
    for tenant in (None, ID, ID.replace('1', '2')):
        for _ in range(2):
            sql("INSERT OR REPLACE INTO outbox (topic, payload, tenant_id, dedupe_key) VALUES ('a', '{}', ?, 'd')", tenant)
    assert sql('SELECT dedupe_key FROM postroom_outbox ORDER BY seq') == [('d',), (f'{ID}/d',), (f'{ID.replace("1", "2")}/d',)]
    assert (sql(PENDING), sql(REASONS)) == ([(0,)], [])


def U2_rollback_of_a_producer_removes_row_and_message_in_sqlite(adopted, db, sql):
    connection = sqlite3.connect(db, timeout=PATIENCE)
    connection.execute(INSERT)
    connection.rollback()
    assert (sql('SELECT count(*) FROM outbox'), sql(OURS)) == ([(0,)], [(0,)])


@pytest.mark.parametrize('body', ['SELECT RAISE(IGNORE)', "UPDATE outbox SET status = 'pending' WHERE id = NEW.id"])
def U2_row_that_cannot_be_marked_keeps_its_old_sender_in_sqlite(adopted, sql, body):
    when = 'BEFORE' if 'RAISE' in body else 'AFTER'
    sql(f'CREATE TRIGGER theirs {when} UPDATE OF status ON outbox WHEN NEW.status = \'sent\' BEGIN {body}; END')
    sql(INSERT)
    assert sql(PENDING)[0][0] + sql(OURS)[0][0] == 1, 'two senders, or none'
    assert 'keeps the row from being marked' in sql(REASONS)[0][0]


@pytest.mark.parametrize('how', ['INSERT', 'INSERT OR IGNORE'])
@pytest.mark.parametrize('constraint', ["CHECK (status IN ('pending', 'done'))", 'CHECK (published_at IS NULL)'])
def U2_constraint_that_refuses_the_mark_keeps_the_old_sender_in_sqlite(postroom, sql, constraint, how):
    postroom.ok('migrate')
    sql(LAYOUT[:-1] + f', {constraint})')
    sql(INSERT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    sql(INSERT.replace('INSERT', how))
    assert (sql(PENDING), sql(OURS)) == ([(2,)], [(0,)])
    assert [reason for reason, in sql(REASONS) if 'a constraint keeps the row from being marked' not in reason] == []


def U2_generated_column_is_never_the_marker_in_sqlite(postroom, sql):
    postroom.ok('migrate')
    sql("""CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, payload TEXT, processed_at TEXT,
        processed INTEGER GENERATED ALWAYS AS (processed_at IS NOT NULL) VIRTUAL)""")
    assert 'the column is generated' in postroom.fails(1, 'adopt', 'outbox', '--yes', '--column', 'done=processed')
    postroom.ok('adopt', 'outbox', '--yes')
    sql(INSERT)
    assert (sql('SELECT processed FROM outbox'), sql(OURS)) == ([(1,)], [(1,)])


@pytest.mark.parametrize('when', ['waiting', 'new'])
def U2_bytes_are_names_of_a_message_in_sqlite(postroom, sql, when):
    """UUIDs in text form, or hex digits. Bytes in text would be cut at the first NUL."""
    postroom.ok('migrate')
    sql('CREATE TABLE outbox (id BLOB PRIMARY KEY, topic TEXT, aggregate BLOB, payload TEXT, sent INTEGER NOT NULL DEFAULT 0)')
    aggregate = uuid.UUID(ID)
    def insert():
        for id in b'\0\1', b'\0\2':
            sql("INSERT INTO outbox VALUES (?, 'a', ?, '{}', 0)", id, aggregate.bytes)
        sql("INSERT INTO outbox VALUES (x'00ff', 'a', x'00ff', '{', 0)")
    if when == 'waiting':
        insert()
    postroom.ok('adopt', 'outbox', '--yes', '--column', 'id=id', '--column', 'key=aggregate', '--column', 'payload=payload')
    if when == 'new':
        insert()
    ids = {uuid.UUID(id).version for id, in sql('SELECT id FROM postroom_outbox')}
    assert ids == {8} and sql('SELECT key FROM postroom_outbox') == [(ID,), (ID,)]
    assert sql('SELECT row_key FROM postroom_adopt_rejects') == [('00ff',)]
    postroom.ok('adopt', 'outbox', '--yes')
    status = postroom.ok('adopt', 'outbox', '--status', '--json').object
    assert (status['pending'], status['rejected'], status['waiting']) == (2, 1, 1)


def U2_undo_in_sqlite_hands_undelivered_messages_back(adopted, sql):
    sql(INSERT)
    adopted.ok('relay', '--to', 'null:', '--drain')
    for _ in range(7):
        sql(INSERT)
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json', '--chunk', '2').object['handed_back'] == 7
    assert (sql(PENDING), sql(OURS)) == ([(7,)], [(1,)])
    sql(INSERT)
    assert (sql(PENDING), sql(OURS)) == ([(8,)], [(1,)])
    assert sql("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'postroom_adopt%' AND type IN ('trigger', 'view')") == [(0,)]
    # And once more.
    assert adopted.ok('adopt', 'outbox', '--yes', '--json', *MAPPING).object['moved'] == 8


@pytest.mark.parametrize('body', ['SELECT RAISE(IGNORE)', "UPDATE outbox SET status = 'sent' WHERE id = NEW.id"])
def U2_undo_in_sqlite_deletes_no_message_whose_row_stays_done(adopted, sql, body):
    sql(INSERT)
    when = 'BEFORE' if 'RAISE' in body else 'AFTER'
    sql(f'CREATE TRIGGER theirs {when} UPDATE OF status ON outbox WHEN NEW.status = \'pending\' BEGIN {body}; END')
    assert 'keeps rows from being opened again' in adopted.fails(1, 'adopt', 'outbox', '--undo', '--yes')
    assert (sql(PENDING), sql(OURS)) == ([(0,)], [(1,)])
    sql('DROP TRIGGER theirs')
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1
    assert (sql(PENDING), sql(OURS)) == ([(1,)], [(0,)])


def U2_hostile_names_are_quoted_in_sqlite(postroom, sql):
    postroom.ok('migrate')
    sql('''CREATE TABLE "o'ut ""b;øx" ("i\\d" INTEGER PRIMARY KEY, "Topic" TEXT, "pay""load" TEXT, "do'ne" BOOLEAN NOT NULL DEFAULT 0)''')
    sql('''INSERT INTO "o'ut ""b;øx" ("Topic", "pay""load") VALUES ('old', '{}')''')
    name = '''o'ut "b;øx'''
    postroom.ok('adopt', name, '--yes', '--column', 'id=i\\d', '--column', 'payload=pay"load', '--column', "done=do'ne")
    sql('''INSERT INTO "o'ut ""b;øx" ("Topic", "pay""load") VALUES ('new', '{}')''')
    assert sql('SELECT topic FROM postroom_outbox ORDER BY seq') == [('old',), ('new',)]
    postroom.ok('adopt', name, '--undo', '--yes')


def U2_unfit_tables_of_sqlite_are_refused(postroom, sql):
    postroom.ok('migrate')
    sql('CREATE VIEW v AS SELECT 1 AS id')
    sql('CREATE TABLE w (id TEXT PRIMARY KEY, topic TEXT, payload TEXT, sent_at TEXT) WITHOUT ROWID')
    sql('CREATE TABLE zoneless (id INTEGER PRIMARY KEY, topic TEXT, payload TEXT, created_at TEXT, sent_at TEXT)')
    sql("INSERT INTO zoneless (topic, payload, created_at) VALUES ('a', '{}', '2026-07-01 10:00:00')")
    sql('CREATE TABLE h (id INTEGER PRIMARY KEY, topic TEXT, payload TEXT, "_RowID_" INTEGER, sent INTEGER)')
    for options in [], ['--keys']:
        assert 'a column _rowid_' in postroom.fails(1, 'adopt', 'h', '--yes', *options)
    error = postroom.fails(1, 'adopt', 'zoneless', '--yes', '--preset', 'debezium')
    assert 'no preset "debezium" for SQLite; the presets are brighter, ' in error, error
    assert 'no table' in postroom.fails(1, 'adopt', 'nothing', '--yes')
    assert 'a view' in postroom.fails(1, 'adopt', 'v', '--yes')
    assert 'WITHOUT ROWID' in postroom.fails(1, 'adopt', 'w', '--yes')
    assert 'a table of Postroom' in postroom.fails(1, 'adopt', 'postroom_outbox', '--yes')
    assert '--time-zone UTC' in postroom.fails(1, 'adopt', 'zoneless', '--yes')
    assert 'only UTC' in postroom.fails(1, 'adopt', 'zoneless', '--yes', '--time-zone', 'Europe/Berlin')


def U2_messages_of_a_key_keep_their_order_over_the_cut_in_sqlite(postroom, sql, table):
    for n in (3, 1, 2):
        sql("INSERT INTO outbox (topic, key, payload, created_at) VALUES ('a', 'k', ?, ?)", str(n), f'2026-07-01T10:00:0{n}Z')
    postroom.ok('adopt', 'outbox', '--yes', '--chunk', '1', *MAPPING)
    sql("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'k', '4')")
    sent = postroom.ok('relay', '--to', 'stdout:', '--drain').objects
    assert [message['payload'] for message in sent] == [1, 2, 3, 4]


def U2_dry_run_in_sqlite_changes_nothing_and_prints_its_statements(postroom, sql, db, table):
    sql(INSERT)
    before = sql('SELECT * FROM sqlite_schema ORDER BY name')
    shown = postroom.ok('adopt', 'outbox', '--dry-run', *MAPPING).out
    assert sql('SELECT * FROM sqlite_schema ORDER BY name') == before and sql(OURS) == [(0,)]
    assert '-- cost: INSERT of one row: ' in shown
    mirror = shown[:shown.index('-- locks: none: the list is temporary')]
    connection = sqlite3.connect(db, timeout=PATIENCE)
    connection.executescript(mirror)
    connection.execute(INSERT)
    connection.commit()
    assert (sql(OURS), sql(PENDING)) == ([(1,)], [(1,)])


def U2_doctor_and_metrics_report_rejects_in_sqlite(adopted, sql):
    is_quiet(adopted)
    assert count_rejected(adopted) == 0
    sql("INSERT INTO outbox (topic, payload) VALUES ('a', '{'), ('a', '[')")
    assert count_rejected(adopted) == 2
    found = only(adopted, 'adopted', 'warning')
    assert '2 row(s) of outbox cannot be messages' == found['title'] and 'payload' in found['detail']
    sql("UPDATE outbox SET payload = '{}' WHERE status = 'pending'")
    adopted.ok(*found['command'].split()[1:])
    is_quiet(adopted)
    for name in 'insert', 'reopen':
        trigger, = sql(f"SELECT name FROM sqlite_schema WHERE name LIKE 'postroom_adopt_{name}%'")
        sql(f'DROP TRIGGER {trigger[0]}')
        found = only(adopted, 'adopted', 'problem')
        adopted.ok(*found['command'].split()[1:])
        is_quiet(adopted)


@pytest.mark.parametrize('done', ['delete', 'none'])
def U2_adopted_table_whose_rows_are_never_marked_is_quiet_in_sqlite(postroom, sql, done):
    postroom.ok('migrate')
    sql('CREATE TABLE outbox (id INTEGER PRIMARY KEY, topic TEXT, payload TEXT)')
    postroom.ok('adopt', 'outbox', '--yes', '--column', f'done={done}')
    is_quiet(postroom)


def U2_renamed_table_has_one_mirror_in_sqlite(adopted, sql):
    """SQLite renames the table in our triggers, too."""
    sql("ALTER TABLE outbox RENAME TO renamed")
    insert = INSERT.replace('outbox', 'renamed')
    sql(insert)
    assert sql(OURS) == [(1,)]
    found = only(adopted, 'adopted', 'note')
    assert 'run "postroom adopt" for the new name' in found['advice'], found
    adopted.ok('adopt', 'renamed', '--yes', *MAPPING)
    sql(insert)
    assert sql(OURS) == [(2,)]
    sql(*statements(found['command']))
    is_quiet(adopted)
    adopted.ok('adopt', 'renamed', '--undo', '--yes')
    assert sql("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view') AND name LIKE 'postroom\\_adopt%' ESCAPE '\\'") == []


def U2_renamed_column_can_be_adopted_again_after_undo_in_sqlite(adopted, sql):
    sql('ALTER TABLE outbox RENAME COLUMN topic TO renamed')
    sql(INSERT.replace('topic', 'renamed'))
    assert 'no longer has this column; run --undo' in adopted.fails(1, 'adopt', 'outbox', '--yes')
    assert adopted.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 1
    adopted.ok('adopt', 'outbox', '--yes', '--column', 'topic=renamed', *MAPPING)
    assert (sql(PENDING), sql(OURS)) == ([(0,)], [(1,)])


def U2_commands_of_doctor_quote_the_name_of_the_table_in_sqlite(postroom, sql):
    postroom.ok('migrate')
    name = '''o'ut "b;øx'''
    quoted = name.replace('"', '""')
    sql(f'CREATE TABLE "{quoted}" (id INTEGER PRIMARY KEY, topic TEXT, payload TEXT, sent INTEGER NOT NULL DEFAULT 0)')
    postroom.ok('adopt', name, '--yes')
    sql(f'INSERT INTO "{quoted}" (topic, payload) VALUES (?, ?)', 'a', '{')
    found = only(postroom, 'adopted', 'warning')
    sql(f'UPDATE "{quoted}" SET payload = ?', '{}')
    words = shlex.split(found['command'])
    assert words[0] == 'postroom' and words[-1] == name, found
    postroom.ok(*words[1:])
    is_quiet(postroom)
    sql(f'DROP TABLE "{quoted}"')
    sql(*statements(only(postroom, 'adopted', 'note')['command']))
    is_quiet(postroom)


class Worker(threading.Thread):
    """Calls step(connection) in one transaction after the other until it is stopped."""

    def __init__(self, db, step):
        super().__init__(daemon=True)
        self.db, self.step, self.ending, self.failure = db, step, threading.Event(), None
        self.start()

    def run(self):
        connection = sqlite3.connect(self.db, timeout=PATIENCE, isolation_level=None)
        try:
            while not self.ending.is_set():
                connection.execute('BEGIN IMMEDIATE')
                after = self.step(connection)
                connection.execute('COMMIT')
                if after:
                    after()
                self.ending.wait(0.003)  # a rate that any machine sustains
        except Exception as failure:  # a producer must never fail
            self.failure = failure
        connection.close()

    def stop(self):
        self.ending.set()
        self.join()
        assert self.failure is None, self.failure


@pytest.mark.parametrize('moment', range(4))
def U2_kills_of_adopt_in_sqlite_lose_and_repeat_nothing(postroom, sql, db, table, moment):
    sql("INSERT INTO outbox (topic, payload) WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) "
        "SELECT 'old', '{}' FROM n")
    made, sent = [], []

    def produce(connection):
        ids = [connection.execute("INSERT INTO outbox (topic, payload) VALUES ('new', '{}')").lastrowid for _ in range(2)]
        return lambda: made.extend(ids)

    def dispatch(connection):  # sends within its write transaction, as a correct dispatcher does
        ids = [id for id, in connection.execute("SELECT id FROM outbox WHERE status = 'pending' ORDER BY id LIMIT 5").fetchall()]
        connection.executemany("UPDATE outbox SET status = 'sent' WHERE id = ?", [(id,) for id in ids])
        return lambda: sent.extend(ids)
    producers = [Worker(db, produce) for _ in range(2)]
    dispatcher = Worker(db, dispatch)
    wait_until(lambda: len(made) > 20 and len(sent) > 20, 'traffic')
    exists = "SELECT count(*) FROM sqlite_schema WHERE name = 'postroom_adopted'"
    reached = [lambda: sql(exists)[0][0], lambda: sql(exists)[0][0] and sql(OURS)[0][0] > 10,
               lambda: sql(OURS)[0][0] > 300, lambda: sql(OURS)[0][0] > 900][moment]
    first = postroom.start('adopt', 'outbox', '--yes', '--chunk', '20', *MAPPING)
    wait_until(lambda: first.poll() is not None or reached(), 'the moment')
    first.kill()
    first.wait()
    if moment % 2:
        dispatcher.stop()
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    for worker in producers:
        worker.stop()
    if not moment % 2:
        dispatcher.stop()
    postroom.ok('adopt', 'outbox', '--yes')
    assert (sql(PENDING), sql(REASONS)) == ([(0,)], [])
    theirs = {id for id, in sql('SELECT id FROM outbox')}
    # The id of a number ends in it.
    ours = [int(id[-12:], 16) for id, in sql('SELECT id FROM postroom_outbox')]
    assert set(made) <= theirs
    assert len(sent) == len(set(sent)) and len(ours) == len(set(ours))
    assert not set(sent) & set(ours), 'a row with two senders'
    assert set(sent) | set(ours) == theirs, 'a row without a sender'


@pytest.mark.parametrize('status', [0, 1], ids=['delivered', 'failed'])
def U2_undo_in_sqlite_is_complete_when_messages_in_flight_are_settled(adopted, sql, tmp_path, status):
    in_flight(adopted, sql, tmp_path, status)


def U2_killed_undo_in_sqlite_continues(adopted, sql):
    sql("INSERT INTO outbox (topic, payload) WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000) "
        "SELECT 'new', '{}' FROM n")
    first = adopted.start('adopt', 'outbox', '--undo', '--yes', '--chunk', '1')
    wait_until(lambda: first.poll() is not None or sql(PENDING)[0][0] > 20, 'some rows')
    first.kill()
    first.wait()
    handed = sql(PENDING)[0][0]
    assert handed + sql(OURS)[0][0] == 2000
    if sql('SELECT count(*) FROM postroom_adopted')[0][0]:
        adopted.ok('adopt', 'outbox', '--undo', '--yes')
    assert (sql(PENDING), sql(OURS)) == ([(2000,)], [(0,)])


MISSING = 'SELECT count(*) FROM outbox WHERE idempotency_key IS NULL'


def U2_keys_in_sqlite_are_added_in_chunks_and_unique(postroom, sql, db, table):
    for _ in range(50):
        sql(INSERT)
    producer = Worker(db, lambda connection: connection.execute(INSERT) and None)
    shown = postroom.ok('adopt', 'outbox', '--keys', '--dry-run').out
    assert re.search(r'-- cost: building the unique index makes writers wait: it took \d+ ms', shown), shown
    for _ in range(2):
        assert postroom.ok('adopt', 'outbox', '--keys', '--yes', '--chunk', '7', '--json').object['keys'] >= 0
    producer.stop()
    assert sql(MISSING + ' AND id <= 50') == [(0,)]
    (key, ), = sql('SELECT idempotency_key FROM outbox WHERE id = 1')
    uuid.UUID(key)
    with pytest.raises(sqlite3.IntegrityError):
        sql('INSERT INTO outbox (topic, payload, idempotency_key, tenant_id) VALUES (?, ?, ?, ?), (?, ?, ?, ?)', *['a', '{}', key, 't'] * 2)
    sql(INSERT)  # rows without a key are tolerated
    postroom.ok('adopt', 'outbox', '--keys', '--require-keys', '--yes')
    assert sql(MISSING) == [(0,)]
    for statement in INSERT, 'UPDATE outbox SET idempotency_key = NULL':
        with pytest.raises(sqlite3.IntegrityError, match='required'):
            sql(statement)


def U2_keys_in_sqlite_are_computed_and_duplicates_are_named(postroom, sql, table):
    for _ in range(3):
        sql(INSERT)
    assert 'gives NULL' in postroom.fails(1, 'adopt', 'outbox', '--keys', '--yes', '--key-sql', 'NULL', '--column', 'tenant_id=')
    refused = postroom('adopt', 'outbox', '--keys', '--yes', '--key-sql', "'same'", '--column', 'tenant_id=')
    assert refused.code == 1 and '1 keys of "outbox" occur more than once, such as same' in refused.err
    sql('UPDATE outbox SET idempotency_key = NULL')
    postroom.ok('adopt', 'outbox', '--keys', '--yes', '--key-sql', "topic || ':' || id", '--column', 'tenant_id=')
    assert sql('SELECT idempotency_key FROM outbox ORDER BY id') == [('a:1',), ('a:2',), ('a:3',)]
