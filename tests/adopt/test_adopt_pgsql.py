# SPDX-License-Identifier: Apache-2.0
"""postroom adopt on PostgreSQL: real producers, a real old dispatcher, and kills."""
import threading

import pytest

from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures

LAYOUT = '''CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text,
    key text, payload jsonb, created_at timestamptz DEFAULT clock_timestamp(),
    status text NOT NULL DEFAULT 'pending', published_at timestamptz)'''
# 'sent' cannot be known from an empty table.
MAPPING = ('--column', 'done=status:sent', '--column', 'open=pending')


class Worker(threading.Thread):
    """Calls step(cursor) in one transaction after the other until it is stopped."""

    def __init__(self, connection, step):
        super().__init__(daemon=True)
        connection.autocommit = False
        self.connection, self.step, self.ending, self.failure = connection, step, threading.Event(), None
        self.start()

    def run(self):
        try:
            while not self.ending.is_set():
                with self.connection, self.connection.cursor() as cursor:
                    self.step(cursor)
                self.ending.wait(0.003)  # a rate that any machine sustains
        except Exception as failure:  # a producer must never fail
            self.failure = failure

    def stop(self):
        self.ending.set()
        self.join()
        self.connection.close()
        assert self.failure is None, self.failure


@pytest.fixture
def work(place, database):  # noqa: F811
    started = []

    def start(step):
        started.append(Worker(place.connect(database), step))
        return started[-1]
    yield start
    for worker in started:
        worker.ending.set()
        worker.join()


def locking_dispatcher(sent):
    """Sends while it holds the row locks, as a correct dispatcher does."""
    def step(cursor):
        cursor.execute("SELECT id FROM outbox WHERE status = 'pending' ORDER BY created_at LIMIT 5 FOR UPDATE SKIP LOCKED")
        ids = [id for id, in cursor.fetchall()]
        cursor.execute("UPDATE outbox SET status = 'sent' WHERE id = ANY (%s::uuid[])", (ids,))
        cursor.connection.commit()
        sent.extend(ids)
    return step


@pytest.mark.parametrize('moment', range(6))
def U2_kills_of_adopt_beside_live_dispatcher_lose_and_repeat_nothing(postroom, sql, work, moment):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, payload) SELECT 'old', '{}' FROM generate_series(1, 2000)")
    made, sent = [], []
    def insert(cursor):
        cursor.execute("INSERT INTO outbox (topic, payload) VALUES ('a', '{}'), ('b', '{}') RETURNING id")
        ids = [id for id, in cursor.fetchall()]
        cursor.connection.commit()
        made.extend(ids)
    producers = [work(insert) for _ in range(2)]
    dispatcher = work(locking_dispatcher(sent))
    wait_until(lambda: len(made) > 20 and len(sent) > 20, 'traffic')
    # Each moment is a state of the database, not a time.
    reached = [
        lambda: sql("SELECT to_regclass('postroom_adopted') IS NOT NULL")[0][0],
        lambda: sql("SELECT to_regclass('postroom_adopt_rejects') IS NOT NULL")[0][0],
        lambda: sql("SELECT EXISTS (SELECT FROM pg_proc WHERE proname LIKE 'postroom_adopt_%')")[0][0],
        lambda: sql("SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'postroom_adopt_insert')")[0][0],
        lambda: sql("SELECT count(*) > 100 FROM postroom_outbox WHERE topic = 'old'")[0][0],
        lambda: sql("SELECT count(*) > 600 FROM postroom_outbox WHERE topic = 'old'")[0][0],
    ][moment]
    first = postroom.start('adopt', 'outbox', '--yes', '--chunk', '20', *MAPPING)
    wait_until(lambda: reached() or first.poll() is not None, 'the moment')
    first.kill()
    first.wait()
    if moment % 2:
        dispatcher.stop()
    wait_until(lambda: not sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom' "
                               "AND datname = current_database()")[0][0], 'the end of its session')
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    for worker in producers:
        worker.stop()
    if not moment % 2:
        dispatcher.stop()
    postroom.ok('adopt', 'outbox', '--yes')
    assert sql("SELECT count(*) FROM outbox WHERE status <> 'sent'") == [(0,)]
    theirs = {id for id, in sql('SELECT id::text FROM outbox')}
    ours = [id for id, in sql('SELECT id::text FROM postroom_outbox')]
    assert set(map(str, made)) <= theirs
    assert len(sent) == len(set(sent))
    assert not set(map(str, sent)) & set(ours), 'a row with two senders'
    assert set(map(str, sent)) | set(ours) == theirs, 'a row without a sender'


def U2_refused_row_never_fails_its_producer(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    sql("INSERT INTO outbox (topic, payload) VALUES ('good', '{}'), (repeat('x', 300), '{}')")
    sql('DROP TABLE postroom_adopt_rejects')
    sql("INSERT INTO outbox (topic, payload) VALUES (repeat('y', 300), '{}'), ('fine', '{}')")
    assert sql('SELECT topic FROM postroom_outbox ORDER BY 1') == [('fine',), ('good',)]
    assert sql("SELECT count(*) FROM outbox WHERE status = 'pending'") == [(2,)]


def U2_refused_rows_do_not_hide_the_rest_of_the_backlog(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, payload) SELECT repeat('x', 300), '{}' FROM generate_series(1, 100)")
    sql("INSERT INTO outbox (topic, payload) SELECT 'good', '{}' FROM generate_series(1, 100)")
    done = postroom.ok('adopt', 'outbox', '--yes', '--json', '--chunk', '10', *MAPPING).object
    assert done == {'moved': 100, 'rejected': 100, 'locked': 0}
    status = postroom.ok('adopt', 'outbox', '--status', '--json').object
    assert (status['rejected'], status['waiting'], status['pending']) == (100, 100, 100)


def U2_undo_hands_undelivered_messages_back(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, payload) SELECT 'old', '{}' FROM generate_series(1, 50)")
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    postroom.ok('relay', '--to', 'null:', '--drain')
    sql("INSERT INTO outbox (topic, payload) SELECT 'new', '{}' FROM generate_series(1, 7)")
    assert postroom.ok('adopt', 'outbox', '--undo', '--yes', '--json').object['handed_back'] == 7
    assert sql("SELECT topic, count(*) FROM outbox WHERE status = 'pending' GROUP BY 1") == [('new', 7)]
    sql("INSERT INTO outbox (topic, payload) VALUES ('later', '{}')")
    assert sql("SELECT count(*) FROM postroom_outbox WHERE status = 'pending'") == [(0,)]


def U2_hostile_names_are_quoted_everywhere(postroom, sql):  # noqa: F811
    sql('CREATE SCHEMA "we""ird $postroom$"')
    sql('CREATE TABLE "we""ird $postroom$"."o\'ut bøx" ("i\\d" bigserial, "pa rt" int, "Topic" text, "pay""load" text, '
        '"do\'ne" boolean NOT NULL DEFAULT false, PRIMARY KEY ("i\\d", "pa rt"))')
    sql('''INSERT INTO "we""ird $postroom$"."o'ut bøx" ("pa rt", "Topic", "pay""load") VALUES (1, 'old', '{"a": 1}')''')
    name = '''we"ird $postroom$.o'ut bøx'''
    postroom.ok('adopt', name, '--yes', '--column', 'id=i\\d', '--column', 'payload=pay"load', '--column', "done=do'ne")
    sql('''INSERT INTO "we""ird $postroom$"."o'ut bøx" ("pa rt", "Topic", "pay""load") VALUES (1, 'new', '{"a": 2}')''')
    assert sql('SELECT topic, payload FROM postroom_outbox ORDER BY seq') == [('old', {'a': 1}), ('new', {'a': 2})]
    assert sql('''SELECT count(*) FROM "we""ird $postroom$"."o'ut bøx" WHERE NOT "do'ne"''') == [(0,)]


def U2_inserts_into_a_partition_are_mirrored_once(postroom, sql):  # noqa: F811
    sql('''CREATE TABLE outbox (id bigint, day int, topic text, payload jsonb, processed_at timestamptz,
        PRIMARY KEY (id, day)) PARTITION BY LIST (day)''')
    sql('CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1)')
    sql('CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)')
    sql("INSERT INTO outbox VALUES (1, 1, 'old', '{}'), (2, 2, 'old', '{}')")
    postroom.ok('adopt', 'outbox', '--yes')
    sql("INSERT INTO outbox VALUES (3, 1, 'root', '{}'), (4, 2, 'root', '{}')")
    sql("INSERT INTO outbox_2 VALUES (5, 2, 'leaf', '{}')")
    assert sql('SELECT topic, count(*) FROM postroom_outbox GROUP BY 1 ORDER BY 1') == [('leaf', 1), ('old', 2), ('root', 2)]
    assert sql('SELECT count(*) FROM outbox WHERE processed_at IS NULL') == [(0,)]


def U2_row_that_an_upsert_reopens_is_mirrored(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    (id, ), = sql("INSERT INTO outbox (topic, payload) VALUES ('a', '1') RETURNING id")
    sql("INSERT INTO outbox (id, topic, payload) VALUES (%s, 'a', '2') ON CONFLICT (id) DO UPDATE "
        "SET payload = excluded.payload, status = 'pending'", id)
    assert sql('SELECT payload FROM postroom_outbox ORDER BY seq') == [(1,), (2,)]
    assert sql('SELECT status FROM outbox') == [('sent',)]


def U2_opaque_envelopes_are_refused_with_the_reason(postroom, sql):  # noqa: F811
    sql('CREATE TABLE "OutboxMessage" ("SequenceNumber" bigserial PRIMARY KEY, "MessageId" uuid, "DestinationAddress" text, "Body" text)')
    assert 'MassTransit' in postroom.fails(1, 'adopt', 'OutboxMessage', '--dry-run')


def U2_dry_run_changes_nothing(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    before = sql('SELECT count(*) FROM pg_class'), sql('SELECT count(*) FROM pg_proc'), sql('SELECT count(*) FROM pg_trigger')
    shown = postroom.ok('adopt', 'outbox', '--dry-run', *MAPPING)
    assert shown.out.count('-- locks: ') >= 8
    assert before == (sql('SELECT count(*) FROM pg_class'), sql('SELECT count(*) FROM pg_proc'), sql('SELECT count(*) FROM pg_trigger'))


def U2_missing_privileges_of_producers_are_printed_and_suffice(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT)
    role = 'p_' + database
    sql(f'CREATE ROLE {role} LOGIN')
    try:
        sql(f'GRANT INSERT ON outbox TO {role}')
        refused = postroom('adopt', 'outbox', '--yes', '--json', *MAPPING)
        assert refused.code == 1 and refused.lines, refused
        for grant in refused.lines:
            sql(grant)
        postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
        place.sql(database, "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')", user=role)
        assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]
    finally:
        sql(f'DROP OWNED BY {role}')
        sql(f'DROP ROLE {role}')
