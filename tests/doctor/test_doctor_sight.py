# SPDX-License-Identifier: Apache-2.0
"""postroom doctor on PostgreSQL: who blocks whom, and what a role cannot see or may not do."""
import contextlib
import threading

import psycopg2
import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, is_quiet, only, statements
from doctor.pgsql_place import NOW, mend, place, session  # noqa: F401  fixtures
from pgsql.conftest import database, db, postroom, sql, template, unmigrated  # noqa: F401  fixtures

WAITS = 'SELECT 1 FROM pg_locks WHERE NOT granted'


def of(check, program, *args):
    return [one for one in findings(program, *args) if one['check'] == check]


@contextlib.contextmanager
def doing(work, *args):
    """In a thread, which ends within the block."""
    thread = threading.Thread(target=work, args=args)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def execute(connection, statement):
    with contextlib.suppress(psycopg2.Error), connection.cursor() as cursor:
        cursor.execute(statement)


def U2_prepared_transaction_that_blocks_the_tables_is_found(postroom, session, sql, mend):  # noqa: F811
    session('BEGIN', 'LOCK TABLE postroom_outbox IN SHARE MODE', "PREPARE TRANSACTION 'left'")
    with doing(postroom.enqueue):
        try:
            wait_until(lambda: sql(WAITS), 'the wait')
            found, = of('blocked', postroom, *NOW)
            assert found['title'] == 'A prepared transaction blocks postroom_outbox', found
            assert [row[0] for row in sql(*statements(found['command']))] == ['left']
            mend(of('vacuum-horizon', postroom, *NOW)[0])
        finally:
            with contextlib.suppress(psycopg2.Error):
                sql("ROLLBACK PREPARED 'left'")
    assert of('blocked', postroom, *NOW) == []


def U2_prepared_transaction_with_a_lock_is_found_before_a_producer_waits(postroom, session, sql):  # noqa: F811
    session('BEGIN', 'LOCK TABLE postroom_outbox IN SHARE MODE', "PREPARE TRANSACTION 'left'")
    try:
        found, = of('blocked', postroom, *NOW)
        assert found['title'] == 'A prepared transaction blocks postroom_outbox', found
    finally:
        sql("ROLLBACK PREPARED 'left'")
    is_quiet(postroom, *NOW)


def U2_open_transaction_with_the_same_dedupe_key_is_named(postroom, session, sql, mend):  # noqa: F811
    holder = session('BEGIN', "INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES ('orders', '{}', 'd')")
    with doing(postroom.enqueue, 'orders', '{}', '--dedupe-key', 'd'):
        try:
            wait_until(lambda: sql(WAITS), 'the wait')
            found, = of('blocked', postroom, *NOW)
            assert found['command'] == f'SELECT pg_terminate_backend({holder.get_backend_pid()});', found
            mend(found)
        finally:
            holder.close()
    assert of('blocked', postroom, *NOW) == []


def U2_wait_for_a_row_of_the_application_is_not_blamed(postroom, session, sql):  # noqa: F811
    sql('CREATE TABLE own (n int)')
    sql('INSERT INTO own VALUES (1)')
    holder = session('BEGIN', 'UPDATE own SET n = 2')
    victim = session('BEGIN', "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')")
    with doing(execute, victim, 'UPDATE own SET n = 3'):
        try:
            wait_until(lambda: sql(WAITS), 'the wait')
            assert of('blocked', postroom, *NOW) == []
        finally:
            holder.close()


def U2_running_vacuum_is_not_blamed(postroom, session, sql):  # noqa: F811
    sql('ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)')
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', '{}' FROM generate_series(1, 20000)")
    vacuum = session('SET vacuum_cost_delay = 100', 'SET vacuum_cost_limit = 1')
    pid = vacuum.get_backend_pid()
    with doing(execute, vacuum, 'VACUUM postroom_outbox'):
        try:
            wait_until(lambda: sql('SELECT 1 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid = %s '
                                   'AND pid IN (SELECT pid FROM pg_stat_progress_vacuum)', pid), 'the vacuum')
            assert of('vacuum-horizon', postroom, *NOW) == []
            assert sql('SELECT count(*) FROM pg_stat_progress_vacuum WHERE pid = %s', pid) == [(1,)]
        finally:
            sql('SELECT pg_terminate_backend(%s)', pid)


def U2_index_that_is_being_built_is_noted_and_left_alone(postroom, place, database, session, sql, role):  # noqa: F811
    definition, = sql("SELECT indexdef FROM pg_indexes WHERE indexname = 'postroom_outbox_due'")[0]
    sql('DROP INDEX postroom_outbox_due')
    sql(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role.name}')
    writer = session('BEGIN', "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')")
    with doing(execute, session(), definition.replace('INDEX', 'INDEX CONCURRENTLY', 1)):
        try:
            wait_until(lambda: sql('SELECT 1 FROM pg_stat_progress_create_index WHERE index_relid > 0'), 'the build')
            found, = of('indexes', postroom)
            assert (found['level'], found['title']) == ('note', 'Index postroom_outbox_due is being built')
            assert postroom('doctor', '--fix').err == ''
            found, = of('indexes', role)
            assert found['level'] == 'skipped' and found['command'] is None, found
        finally:
            execute(writer, 'ROLLBACK')
    is_quiet(postroom)


class Role(Postroom):
    name = '"it\'s a ""role"""'


@pytest.fixture
def role(place, database, sql, unmigrated, tmp_path):  # noqa: F811
    """The program as a role with quotes in its name and without privileges."""
    sql(f'CREATE ROLE {Role.name} LOGIN')
    yield Role(place.url(database, user='it\'s a "role"'), tmp_path)
    sql(f'DROP OWNED BY {Role.name}')
    sql(f'DROP ROLE {Role.name}')


def U2_relay_runs_with_the_grants_that_doctor_prints(postroom, role, sql, mend):  # noqa: F811
    """From a role without any privilege, by the printed commands alone."""
    sql('REVOKE USAGE ON SCHEMA public FROM public')
    found, = of('schema', role)
    assert found['title'] == 'The role may not read the tables', found
    mend(found)
    found, = of('privileges', role)
    mend(found)
    assert {one['level'] for one in findings(role)} == {'skipped'}
    mend(of('vacuum-horizon', role)[0])
    is_quiet(role)
    for lease in ('row', 'lane'):
        postroom.ok('lease', lease)
        postroom.enqueue('orders', '{}', '--key', 'k', '--dedupe-key', lease)
        postroom.enqueue('orders', '{}', '--delay', '1ms')
        role('relay', '--to', 'exec:exit 65', '--drain')
        role.ok('retry', '--dead')
        role.ok('relay', '--to', 'null:', '--drain')
        role.ok('purge', '--status', 'delivered', '--older-than', '0s', '--yes')
        assert role.ok('stats', '--json').objects


def U2_one_missing_column_privilege_is_found(postroom, role, sql, mend):  # noqa: F811
    mend(of('schema', role)[0])
    mend(of('privileges', role)[0])
    sql(f'REVOKE UPDATE (status) ON postroom_outbox FROM {Role.name}')
    found, = of('privileges', role)
    assert 'UPDATE on public.postroom_outbox' in found['detail'], found
    mend(found)
    assert of('privileges', role) == []


def U2_rows_that_a_policy_hides_are_skipped_and_not_ok(postroom, role, sql, mend):  # noqa: F811
    mend(of('schema', role)[0])
    mend(of('privileges', role)[0])
    sql('ALTER TABLE postroom_outbox ENABLE ROW LEVEL SECURITY')
    postroom.enqueue('orders')
    sql("UPDATE postroom_outbox SET status = 'delivered', delivered_at = NULL")
    found = {one['check']: one for one in examine(role)}
    for check in ('stranded', 'expired-leases', 'delivering', 'retention', 'sizes'):
        assert found[check]['level'] == 'skipped' and 'row-level security' in found[check]['detail'], found[check]
    assert found['table-kind']['level'] == 'warning'


def U2_expired_lease_of_the_inbox_is_found(postroom, sql):  # noqa: F811
    postroom.ok('inbox', 'submit', 'bill', 'id', '{}')
    sql("UPDATE postroom_inbox SET status = 'active', locked_by = gen_random_uuid(), attempts = 1, claims = 1, "
        "locked_until = clock_timestamp() - interval '2 minutes'")
    found = only(postroom, 'expired-leases', 'warning')
    assert found['title'].endswith('in the inbox') and 'bill' in postroom.ok(*found['command'].split()[1:]).out
    postroom.ok('consume', '--handler', 'bill', '--exec', 'true', '--drain')
    is_quiet(postroom)


def U2_message_that_waits_although_a_relay_is_connected_is_found(postroom, session):  # noqa: F811
    session("SET application_name = 'postroom relay'")
    postroom.enqueue('orders')
    found, = wait_until(lambda: of('delivering', postroom, *NOW), 'a millisecond')
    assert found['title'] == 'Due messages wait although a relay is connected'
    assert 'orders' in postroom.ok(*found['command'].split()[1:]).out
    postroom.ok('relay', '--to', 'null:', '--drain')
    is_quiet(postroom, *NOW)


def U2_table_that_was_not_vacuumed_for_an_hour_is_found(postroom, sql, mend):  # noqa: F811
    """Although it has more live rows than dead ones."""
    sql('ALTER TABLE postroom_history SET (autovacuum_enabled = off)')
    sql('INSERT INTO postroom_history (id, delivered_at) SELECT gen_random_uuid(), clock_timestamp() FROM generate_series(1, 202000)')
    sql('DELETE FROM postroom_history WHERE ctid IN (SELECT ctid FROM postroom_history LIMIT 101000)')
    found, = wait_until(lambda: of('dead-rows', postroom), 'the statistics')
    assert found['level'] == 'warning' and 'last vacuum was never' in found['detail'], found
    mend(found)
    wait_until(lambda: not of('dead-rows', postroom), 'the statistics')


def U2_inactive_slot_with_a_gigabyte_of_wal_is_a_problem(postroom, place, sql, mend):  # noqa: F811
    for words in ("ALTER SYSTEM SET max_slot_wal_keep_size = '8GB'", 'SELECT pg_reload_conf()'):
        place.sql('postgres', words)
    try:
        wait_until(lambda: sql('SHOW max_slot_wal_keep_size') == [('8GB',)], 'the setting')
        sql("SELECT pg_create_physical_replication_slot('behind', true)")
        is_quiet(postroom)
        for _ in range(66):
            sql("SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()")
        found = only(postroom, 'wal-slots', 'problem')
        assert 'retains 1' in found['detail'], found
        mend(found)
        is_quiet(postroom)
    finally:
        place.sql('postgres', 'ALTER SYSTEM RESET max_slot_wal_keep_size')
        place.sql('postgres', 'SELECT pg_reload_conf()')


def U2_index_with_quotes_in_its_name_is_dropped_by_the_advice(postroom, sql, mend):  # noqa: F811
    sql("CREATE INDEX \"my \"\"index (on\"\" on postroom_outbox\" ON postroom_outbox (next_attempt_at, seq) WHERE status = 'pending'")
    found = only(postroom, 'claim-plans', 'problem')
    assert found['command'] == 'DROP INDEX CONCURRENTLY public."my ""index (on"" on postroom_outbox";', found
    mend(found)
    is_quiet(postroom)
