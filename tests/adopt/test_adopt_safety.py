# SPDX-License-Identifier: Apache-2.0
"""postroom adopt must never fail a producer, never give a row two senders, and trust no foreign object."""
import pytest

from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, server, shared, sql, template, unmigrated  # noqa: F401  fixtures

INSERT = "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')"
PENDING = "SELECT count(*) FROM outbox WHERE status = 'pending'"
OURS = 'SELECT count(*) FROM postroom_outbox'
REASONS = 'SELECT reason FROM postroom_adopt_rejects'


@pytest.fixture
def adopted(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    return postroom


def trigger(sql, body, when='BEFORE UPDATE', each='ROW'):  # noqa: F811
    sql(f'CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$')
    sql(f'CREATE TRIGGER theirs {when} ON outbox FOR EACH {each} EXECUTE FUNCTION theirs()')


@pytest.mark.parametrize('column', ['status', 'id', 'topic'])
def U2_renamed_column_never_fails_the_producer(adopted, sql, column):  # noqa: F811
    sql(f'ALTER TABLE outbox RENAME COLUMN {column} TO renamed')
    sql("INSERT INTO outbox (payload) VALUES ('{}'), ('[]')")
    assert sql('SELECT count(*) FROM outbox') == [(2,)]
    assert sql(OURS) == [(0,)]
    assert column in sql(REASONS)[0][0]


def U2_renamed_column_never_fails_an_upsert_that_reopens_a_row(adopted, sql):  # noqa: F811
    sql(INSERT)
    sql('ALTER TABLE outbox RENAME COLUMN id TO renamed')
    sql("UPDATE outbox SET status = 'pending'")
    assert sql(PENDING) == [(1,)]


def U2_warning_that_the_client_cannot_display_never_fails_the_producer(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT.replace('uuid PRIMARY KEY DEFAULT gen_random_uuid()', 'text PRIMARY KEY'))
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    place.sql(database, "INSERT INTO outbox (id, topic, payload) VALUES (U&'\\2603', repeat('x', 300), '{}')",
              client_encoding='LATIN1')
    assert sql('SELECT row_key FROM postroom_adopt_rejects') == [('\u2603',)]


def U2_failed_assertion_of_their_trigger_never_fails_the_producer(adopted, sql):  # noqa: F811
    trigger(sql, "ASSERT NEW.status = 'pending', 'not yet'; RETURN NEW;")
    sql(INSERT)
    assert (sql(PENDING), sql(OURS), sql(REASONS)) == ([(1,)], [(0,)], [('not yet',)])


MARKS_THAT_FAIL = {
    'trigger returns null': 'RETURN NULL;',
    'trigger restores the status': 'NEW.status := OLD.status; RETURN NEW;',
}


@pytest.mark.parametrize('body', MARKS_THAT_FAIL.values(), ids=MARKS_THAT_FAIL)
def U2_row_that_cannot_be_marked_keeps_its_old_sender(adopted, sql, body):  # noqa: F811
    trigger(sql, body)
    sql("INSERT INTO outbox (topic, payload) VALUES ('a', '{}'), ('b', '{}')")
    assert (sql(PENDING), sql(OURS)) == ([(2,)], [(0,)])
    assert 'keeps the row from being marked' in sql(REASONS)[1][0]


@pytest.mark.parametrize('body', MARKS_THAT_FAIL.values(), ids=MARKS_THAT_FAIL)
def U2_backlog_stops_when_rows_cannot_be_marked(postroom, sql, body):  # noqa: F811
    sql(LAYOUT)
    sql(INSERT)
    trigger(sql, body)
    failed = postroom('adopt', 'outbox', '--yes', *MAPPING)
    assert failed.code == 1 and 'keeps rows from being marked' in failed.err
    assert (sql(PENDING), sql(OURS)) == ([(1,)], [(0,)])


def U2_row_that_row_security_hides_from_its_producer_keeps_its_old_sender(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT)
    role = 'p_' + database
    sql(f'CREATE ROLE {role} LOGIN')
    try:
        sql(f'GRANT SELECT, INSERT, UPDATE ON outbox TO {role}')
        for grant in postroom('adopt', 'outbox', '--yes', '--json', *MAPPING).lines:
            sql(grant)
        postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
        sql('ALTER TABLE outbox ENABLE ROW LEVEL SECURITY')
        sql('CREATE POLICY may_insert ON outbox FOR INSERT WITH CHECK (true)')
        place.sql(database, INSERT, user=role)
        assert (sql(PENDING), sql(OURS)) == ([(1,)], [(0,)])
        assert 'row security' in sql(REASONS)[0][0]
    finally:
        sql(f'DROP OWNED BY {role}')
        sql(f'DROP ROLE {role}')


def U2_their_triggers_run_with_the_search_path_of_the_producer(adopted, sql):  # noqa: F811
    sql('CREATE TABLE audit (id uuid)')
    trigger(sql, 'INSERT INTO audit VALUES (NEW.id); RETURN NEW;')
    sql(INSERT)
    assert (sql(PENDING), sql(OURS), sql('SELECT count(*) FROM audit')) == ([(0,)], [(1,)], [(1,)])


def U2_functions_on_the_search_path_cannot_replace_those_of_the_mirror(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT.replace('uuid PRIMARY KEY DEFAULT gen_random_uuid()', 'varchar PRIMARY KEY').replace('key text', 'key varchar'))
    postroom.ok('adopt', 'outbox', '--yes', '--column', 'headers=payload', *MAPPING)
    sql('CREATE SCHEMA evil')
    for name, parameters, result in [
            ('md5', 'text', 'text'), ('md5', 'varchar', 'text'), ('jsonb_each', 'jsonb', 'text'),
            ('clock_timestamp', '', 'timestamptz'), ('concat_ws', 'text, varchar', 'text')]:
        sql(f"CREATE FUNCTION evil.{name}({parameters}) RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'hijacked'; END $$")
    sql("CREATE FUNCTION evil.boom(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$")
    sql('CREATE OPERATOR evil.= (FUNCTION = evil.boom, LEFTARG = varchar, RIGHTARG = varchar)')
    place.sql(database, "INSERT INTO outbox (id, topic, key, payload) VALUES ('1', 'a', 'k', '{}')",
              options='-c search_path=evil,public')
    assert (sql(REASONS), sql(OURS)) == ([], [(1,)])


def U2_column_name_is_never_an_expression(postroom, sql):  # noqa: F811
    sql('''CREATE TABLE outbox ("sql:pg_sleep(0), gen_random_uuid()" int PRIMARY KEY, topic text, payload jsonb,
        processed_at timestamptz)''')
    sql("INSERT INTO outbox VALUES (1, 'old', '{}')")
    postroom.ok('adopt', 'outbox', '--yes')
    sql("INSERT INTO outbox VALUES (2, 'new', '{}')")
    assert sql('SELECT topic, id FROM postroom_outbox ORDER BY seq') == sql(
        "SELECT topic, md5('adopt:public.outbox:' || \"sql:pg_sleep(0), gen_random_uuid()\")::uuid::text FROM outbox ORDER BY 1 DESC")
    assert postroom.ok('adopt', 'outbox', '--status', '--json').object['pending'] == 2


def U2_recorded_mapping_is_never_an_expression(adopted, sql):  # noqa: F811
    sql("""UPDATE postroom_adopted SET mapping = mapping || '{"key": "sql:(SELECT pg_read_file(''/etc/hostname''))"}'""")
    assert 'no longer has this column' in adopted.fails(1, 'adopt', 'outbox', '--yes')


FOREIGN = {
    'table': "CREATE TABLE postroom_adopted (table_name text, preset text, time_zone text, mapping jsonb, moved bigint, adopted_at timestamptz)",
    'rejects': 'CREATE TABLE postroom_adopt_rejects (table_name text, row_key text, reason text, rejected_at timestamptz)',
    'view': "CREATE VIEW postroom_adopted AS SELECT 'public.outbox' AS table_name",
    'function': "CREATE FUNCTION postroom_adopt_{digest}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
}


@pytest.mark.parametrize('kind', FOREIGN)
def U2_objects_of_another_owner_are_not_trusted(postroom, place, database, sql, kind):  # noqa: F811
    sql(LAYOUT)
    role = 'p_' + database
    sql(f'CREATE ROLE {role} LOGIN')
    try:
        sql(f'GRANT CREATE ON SCHEMA public TO {role}')
        (digest, ), = sql("SELECT left(md5('public.outbox'), 12)")
        place.sql(database, FOREIGN[kind].replace('{digest}', digest), user=role)
        complaint = postroom.fails(1, 'adopt', 'outbox', '--yes', *MAPPING)
        assert role in complaint and 'postroom_adopt' in complaint
        assert sql("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'postroom_adopt%'") == [(0,)]
    finally:
        sql(f'DROP OWNED BY {role}')
        sql(f'DROP ROLE {role}')


def U2_producer_may_prepare_its_transaction(server, postroom, database, sql):  # noqa: F811
    server.stop()
    server.configure(max_prepared_transactions=5)
    server.start()
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    postroom.start('relay', '--to', 'file:out', '--poll-interval', '5s', '--workers', '1')
    wait_until(lambda: sql('SELECT 1 FROM postroom_notify_until WHERE last_value > '
                           'extract(epoch FROM clock_timestamp()) * 1000 + 2000'), 'the relay to sleep')
    with server.connect(database).cursor() as cursor:
        cursor.execute('BEGIN')
        cursor.execute(INSERT)
        cursor.execute("PREPARE TRANSACTION 'order 1'")
    sql("COMMIT PREPARED 'order 1'")
    assert sql("SELECT count(*) FROM postroom_messages") == [(1,)]


def U2_adoption_and_undo_leave_audit_events(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    sql(INSERT)
    log = postroom.ok('adopt', 'outbox', '--yes', *MAPPING).err
    assert 'OUTBOX_OPERATOR_ACTION action=adopt-mirror filter="table=public.outbox" count=1 actor=' in log
    assert 'OUTBOX_OPERATOR_ACTION action=adopt-backlog filter="table=public.outbox" count=1 actor=' in log
    log = postroom.ok('adopt', 'outbox', '--undo', '--yes').err
    assert 'OUTBOX_OPERATOR_ACTION action=adopt-undo filter="table=public.outbox" count=1 actor=' in log


@pytest.mark.parametrize('name', ['postroom_adopt_insert', 'postroom_adopt_reopen'])
def U2_disabled_trigger_is_reported_and_repaired(adopted, sql, name):  # noqa: F811
    sql(f'ALTER TABLE outbox DISABLE TRIGGER {name}')
    sql(INSERT)
    assert adopted.ok('adopt', 'outbox', '--status', '--json').object['mirrored_tables'] == 0
    adopted.ok('adopt', 'outbox', '--yes')
    assert adopted.ok('adopt', 'outbox', '--status', '--json').object['mirrored_tables'] == 1
    sql(INSERT)
    assert (sql(PENDING), sql(OURS)) == ([(0,)], [(2,)])
