# SPDX-License-Identifier: Apache-2.0
"""postroom doctor on PostgreSQL: each condition is produced, found, mended by the advice, and gone."""
import re
import threading

import psycopg2
import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, is_quiet, only, shim, statements
from doctor.pgsql_place import NOW, mend, place, session  # noqa: F401  fixtures
from pgsql.conftest import database, db, postroom, sql, template, unmigrated  # noqa: F401  fixtures


def U2_healthy_database_is_quiet(postroom):  # noqa: F811
    is_quiet(postroom)
    postroom.ok('lease', 'lane')
    is_quiet(postroom)
    verbose = postroom.ok('doctor', '--verbose')
    assert sum(line.startswith('ok ') for line in verbose.lines) > 25, verbose
    assert verbose.lines[-1].startswith('Everything is fine: '), verbose


def U2_busy_database_is_quiet(postroom):  # noqa: F811
    for key in range(30):
        postroom.enqueue('orders', '{}', '--key', f'k{key % 7}', '--dedupe-key', f'd{key}')
    postroom.ok('relay', '--to', 'null:', '--drain')
    postroom.enqueue('orders', '{}', '--delay', '1h')
    is_quiet(postroom)


def U2_missing_tables_are_a_problem_that_migrate_solves(unmigrated):  # noqa: F811
    found = findings(unmigrated)
    assert found[0]['check'] == 'schema' and found[0]['level'] == 'problem', found
    assert {one['level'] for one in found[1:]} == {'skipped'}
    assert unmigrated.ok(*found[0]['command'].split()[1:])
    is_quiet(unmigrated)


def U2_unreachable_server_is_a_problem(tmp_path):
    gone = Postroom(f'postgres://unknown@/none?host={tmp_path}', tmp_path)
    assert only(gone, 'database', 'problem')['detail']


def U2_forgotten_transaction_of_this_database_is_named(postroom, session, mend):  # noqa: F811
    holder = session('BEGIN', 'SELECT txid_current()')
    pid = holder.get_backend_pid()
    is_quiet(postroom)  # five minutes are not over
    found = only(postroom, 'vacuum-horizon', 'warning', *NOW)
    assert str(pid) in found['title'] and found['command'] == f'SELECT pg_terminate_backend({pid});'
    mend(found)
    wait_until(lambda: not findings(postroom, *NOW), 'the session to end')


def U2_forgotten_transaction_of_another_database_is_not_blamed(postroom, session):  # noqa: F811
    session('BEGIN', 'SELECT txid_current()', name='postgres')
    is_quiet(postroom, *NOW)


def U2_many_dead_rows_make_the_holder_a_problem(postroom, session, sql):  # noqa: F811
    session('BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM postroom_outbox')
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', '{}' FROM generate_series(1, 50100)")
    sql('DELETE FROM postroom_outbox')
    wait_until(lambda: any(one['check'] == 'vacuum-horizon' and one['level'] == 'problem'
                           for one in findings(postroom, *NOW)), 'the statistics')


def U2_prepared_transaction_is_named(postroom, session, mend):  # noqa: F811
    session('BEGIN', "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')", "PREPARE TRANSACTION 'it''s'")
    found = only(postroom, 'vacuum-horizon', 'warning', *NOW)
    assert found['command'] == "ROLLBACK PREPARED 'it''s';"
    mend(found)
    is_quiet(postroom, *NOW)


def U2_inactive_slot_is_blamed_for_wal_and_not_for_dead_rows(postroom, sql, mend):  # noqa: F811
    sql("SELECT pg_create_logical_replication_slot('left_behind', 'test_decoding')")
    found = only(postroom, 'wal-slots', 'warning', *NOW)
    assert 'left_behind' in found['title'] and 'WAL' in found['detail']
    mend(found)
    is_quiet(postroom, *NOW)


def interrupt_index(session, sql):  # noqa: F811
    """Leaves an invalid index, as an interrupted CREATE INDEX CONCURRENTLY does."""
    definition, = sql("SELECT indexdef FROM pg_indexes WHERE indexname = 'postroom_outbox_due'")[0]
    sql('DROP INDEX postroom_outbox_due')
    writer = session('BEGIN', "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')")
    builder = session("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg2.errors.QueryCanceled), builder.cursor() as cursor:
        cursor.execute(definition.replace('INDEX', 'INDEX CONCURRENTLY', 1))
    with writer.cursor() as cursor:
        cursor.execute('ROLLBACK')


def U2_invalid_index_is_rebuilt_by_its_advice(postroom, session, sql, mend):  # noqa: F811
    interrupt_index(session, sql)
    found = only(postroom, 'indexes', 'problem')
    assert 'postroom_outbox_due is invalid' in found['title']
    mend(found)
    is_quiet(postroom)


def U2_fix_repairs_own_objects(postroom, session, sql):  # noqa: F811
    interrupt_index(session, sql)
    sql('DROP INDEX postroom_outbox_dedupe')
    sql('ALTER TABLE postroom_outbox RESET (autovacuum_vacuum_threshold), SET (autovacuum_enabled = off)')
    assert {one['check'] for one in findings(postroom)} == {'indexes', 'autovacuum'}
    fixed = postroom.ok('doctor', '--fix')
    assert fixed.err.count('fixed: ') == 4 and fixed.out.startswith('Everything is fine'), fixed
    is_quiet(postroom)


def U2_fix_leaves_objects_of_others_alone(postroom, sql):  # noqa: F811
    sql('ALTER TABLE postroom_outbox DISABLE TRIGGER postroom_outbox_new')
    result = postroom('doctor', '--fix')
    assert result.code == 1 and result.err == '', result
    only(postroom, 'triggers', 'problem')


@pytest.mark.parametrize('lease', ['row', 'lane'])
def U2_each_missing_index_is_found_and_created_by_its_advice(postroom, sql, mend, lease):  # noqa: F811
    postroom.ok('lease', lease)
    names = [name for name, in sql("SELECT indexname FROM pg_indexes WHERE tablename LIKE 'postroom%' "
                                   "AND indexname NOT LIKE '%pkey'")]
    assert len(names) > 18
    before = sorted(sql("SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'postroom%'"))
    for name in names:
        sql(f'DROP INDEX {name}')
    found = findings(postroom)
    assert {one['check'] for one in found} <= {'indexes'}, found
    for one in found:
        mend(one)
    assert sorted(sql("SELECT indexdef FROM pg_indexes WHERE tablename LIKE 'postroom%'")) == before
    is_quiet(postroom)


def U2_changed_index_is_found(postroom, sql, mend):  # noqa: F811
    sql('DROP INDEX postroom_outbox_leased')
    sql("CREATE INDEX postroom_outbox_leased ON postroom_outbox (locked_until) WHERE status = 'dead'")
    found = only(postroom, 'indexes', 'warning')
    mend(found)
    is_quiet(postroom)


def U2_each_missing_trigger_is_found(postroom, sql, mend):  # noqa: F811
    triggers = sql("SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal")
    assert len(triggers) == 8
    for name, table in triggers:
        sql(f'ALTER TABLE {table} DISABLE TRIGGER {name}')
    found = findings(postroom)
    assert [(one['check'], one['level']) for one in found] == [('triggers', 'problem')] * len(triggers)
    for one in found:
        mend(one)
    is_quiet(postroom)
    for name, table in triggers:
        sql(f'DROP TRIGGER {name} ON {table}')
    for one in findings(postroom):
        mend(one)
    is_quiet(postroom)
    postroom.enqueue('orders', '{}', '--delay', '1h', '--dedupe-key', 'd')


@pytest.mark.parametrize('setting, check, level', [
    ('fsync', 'durability', 'problem'), ('full_page_writes', 'durability', 'warning'),
    ('autovacuum', 'autovacuum', 'warning'), ('synchronous_commit', 'durability', 'note')])
def U2_dangerous_setting_is_found(postroom, place, sql, mend, setting, check, level):  # noqa: F811
    place.sql('postgres', f'ALTER SYSTEM SET {setting} = off')
    place.sql('postgres', 'SELECT pg_reload_conf()')
    try:
        wait_until(lambda: sql(f'SHOW {setting}') == [('off',)], 'the setting')
        mend(only(postroom, check, level))
        if setting == 'synchronous_commit':
            is_quiet(postroom)
            place.sql('postgres', f'ALTER SYSTEM RESET {setting}')
            place.sql('postgres', 'SELECT pg_reload_conf()')
        wait_until(lambda: not findings(postroom), 'the setting')
    finally:
        place.sql('postgres', f'ALTER SYSTEM RESET {setting}')
        place.sql('postgres', 'SELECT pg_reload_conf()')
        wait_until(lambda: place.sql('postgres', f'SHOW {setting}') == [('on',)], 'the setting')
        place.sql('postgres', f'ALTER ROLE postgres IN DATABASE {sql("SELECT current_database()")[0][0]} RESET ALL')


def U2_read_only_default_is_a_problem(postroom, place, database, sql, mend):  # noqa: F811
    sql(f'ALTER DATABASE {database} SET default_transaction_read_only = on')
    found = only(postroom, 'primary', 'problem')
    for statement in statements(found['command']):
        place.sql('postgres', statement)
    is_quiet(postroom)


@pytest.mark.parametrize('value, level', [(800 * 10**12, 'warning'), (950 * 10**12, 'problem')])
def U2_sequence_near_its_end_is_found(postroom, sql, mend, value, level):  # noqa: F811
    postroom.enqueue('orders', '{}', '--key', 'k')
    sql("SELECT setval('postroom_outbox_seq_seq', %s)", value)
    found = only(postroom, 'sequences', level)
    mend(found)
    is_quiet(postroom)
    postroom.enqueue('orders', '{}', '--key', 'k')
    assert postroom.ok('relay', '--to', 'null:', '--drain')
    assert sql('SELECT max(seq) FROM postroom_outbox') == [(2,)]


def U2_role_without_privileges_learns_its_grants_and_skips_unreadable_checks(
        postroom, place, database, sql, mend, session, tmp_path):  # noqa: F811
    sql('CREATE ROLE plain LOGIN')
    try:
        role = Postroom(place.url(database, user='plain'), tmp_path)
        sql('GRANT SELECT ON postroom_migrations, postroom_lanes TO plain')
        session('BEGIN', 'SELECT txid_current()')
        found = {one['check']: one for one in findings(role, *NOW)}
        assert found['privileges']['level'] == 'problem'
        assert found['stranded']['level'] == 'skipped' and 'permission denied' in found['stranded']['detail']
        assert {name: found[name]['level'] for name in ('vacuum-horizon', 'blocked', 'idle-in-transaction')} == \
            dict.fromkeys(('vacuum-horizon', 'blocked', 'idle-in-transaction'), 'skipped')
        mend(found['privileges'])
        found = {one['check']: one for one in findings(role, *NOW)}
        assert {one['level'] for one in found.values()} == {'skipped'}, found
        mend(found['vacuum-horizon'])
        only(role, 'vacuum-horizon', 'warning', *NOW)
    finally:
        sql('DROP OWNED BY plain')
        sql('DROP ROLE plain')


EXPIRED = {
    'outbox': ("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '{}')",
               "UPDATE postroom_outbox SET status = 'processing', locked_by = gen_random_uuid(), attempts = 1, "
               "claims = 1, state = 'scheduled', locked_until = clock_timestamp() - interval '2 minutes'"),
    'outbox (lanes)': ("INSERT INTO postroom_outbox (topic, payload, key) VALUES ('t', '{}', 'k')",
                       "UPDATE postroom_lanes SET locked_by = gen_random_uuid(), epoch = epoch + 1, "
                       "locked_until = clock_timestamp() - interval '2 minutes', "
                       "in_flight = ARRAY(SELECT seq FROM postroom_outbox) "
                       "WHERE lane = (SELECT (hashtext('k') & 63) + 1)")}


@pytest.mark.parametrize('box', EXPIRED)
def U2_expired_lease_without_relay_is_found(postroom, sql, box):  # noqa: F811
    if 'lanes' in box:
        postroom.ok('lease', 'lane')
    for statement in EXPIRED[box]:
        sql(statement)
    found = only(postroom, 'expired-leases', 'warning')
    assert found['title'].endswith(f'in the {box}'), found
    postroom.ok(*found['command'].split()[1:])
    postroom.ok('relay', '--to', 'null:', '--drain')
    is_quiet(postroom)


@pytest.mark.parametrize('lease', ['row', 'lane'])
@pytest.mark.parametrize('key', [(), ('--key', 'k')])
def U2_undelivered_message_without_relay_is_found(postroom, lease, key):  # noqa: F811
    postroom.ok('lease', lease)
    postroom.enqueue('orders', '{}', *key)
    is_quiet(postroom)
    wait_until(lambda: findings(postroom, *NOW), 'a millisecond')
    only(postroom, 'delivering', 'warning', *NOW)
    postroom.ok('relay', '--to', 'null:', '--drain')
    is_quiet(postroom, *NOW)


STRANDED = ["UPDATE postroom_outbox SET state = 'held'", "UPDATE postroom_outbox SET state = 'scheduled', next_attempt_at = '9000-01-01'",
            "UPDATE postroom_outbox SET status = 'delivered', delivered_at = NULL",
            "UPDATE postroom_outbox SET status = 'processing', locked_by = gen_random_uuid(), locked_until = '9000-01-01'",
            "INSERT INTO postroom_history (id) VALUES (gen_random_uuid())",
            "UPDATE postroom_outbox SET next_attempt_at = '9000-01-01'",
            "UPDATE postroom_lanes SET locked_by = gen_random_uuid(), in_flight = '{}', locked_until = '9000-01-01' WHERE lane = 7",
            "UPDATE postroom_inbox SET next_attempt_at = '9000-01-01'",
            "UPDATE postroom_inbox SET state = 'held'",
            "UPDATE postroom_outbox SET status = 'delivered', delivered_at = '9000-01-01'",
            "INSERT INTO postroom_history (id, delivered_at) VALUES (gen_random_uuid(), 'infinity')",
            "UPDATE postroom_inbox SET status = 'completed', processed_at = clock_timestamp(), updated_at = '9000-01-01'",
            "UPDATE postroom_inbox SET status = 'active', locked_by = gen_random_uuid(), locked_until = '9000-01-01'",
            "DELETE FROM postroom_lanes WHERE lane = 7"]


@pytest.mark.parametrize('statement', STRANDED)
def U2_stranded_row_is_found(postroom, sql, mend, statement):  # noqa: F811
    postroom.enqueue('orders')
    postroom.ok('inbox', 'submit', 'handler', 'id', '{}')
    sql(statement)
    found = only(postroom, 'stranded', 'problem')
    mend(found)
    assert [one for one in findings(postroom) if one['check'] == 'stranded'] == []
    postroom.ok('relay', '--to', 'null:', '--drain')


@pytest.mark.parametrize('statement, level', [
    ('ALTER TABLE postroom_outbox SET UNLOGGED', 'problem'),
    ('ALTER TABLE postroom_outbox ENABLE ROW LEVEL SECURITY', 'warning')])
def U2_table_that_loses_or_hides_rows_is_found(postroom, sql, mend, statement, level):  # noqa: F811
    sql(statement)
    mend(only(postroom, 'table-kind', level))
    is_quiet(postroom)


def U2_blocking_session_is_named_and_ended_by_the_advice(postroom, session, place, database, sql, mend):  # noqa: F811
    blocker = session('BEGIN', 'LOCK TABLE postroom_outbox IN SHARE MODE')
    victim = threading.Thread(target=postroom.enqueue)
    victim.start()
    try:
        wait_until(lambda: sql('SELECT 1 FROM pg_locks WHERE NOT granted'), 'the wait')
        found = [one for one in findings(postroom, *NOW) if one['check'] == 'blocked']
        assert found and all(one['level'] == 'warning' for one in found)
        assert found[0]['command'] == f'SELECT pg_terminate_backend({blocker.get_backend_pid()});'
        mend(found[0])
    finally:
        blocker.close()
        victim.join()
    assert not [one for one in findings(postroom, *NOW) if one['check'] == 'blocked']


def U2_session_idle_in_transaction_is_named(postroom, session, mend):  # noqa: F811
    session('BEGIN', 'SELECT 1')
    mend(only(postroom, 'idle-in-transaction', 'warning', *NOW))
    wait_until(lambda: not findings(postroom, *NOW), 'the session to end')


def U2_connection_limit_below_need_is_found(postroom, sql, database, mend):  # noqa: F811
    sql(f'ALTER DATABASE {database} CONNECTION LIMIT 2')
    mend(only(postroom, 'connections', 'warning'))
    is_quiet(postroom)


def U2_old_rows_are_noted_and_purged_by_the_advice(postroom, sql):  # noqa: F811
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) "
        "VALUES ('t', '{}', 'delivered', clock_timestamp() - interval '20 days')")
    found = only(postroom, 'retention', 'note')
    postroom.ok(*found['command'].split()[1:])
    is_quiet(postroom)


def U2_never_analyzed_table_is_fixed(postroom, sql, place, database):  # noqa: F811
    sql('ALTER TABLE postroom_outbox SET (autovacuum_analyze_threshold = 2000000000)')
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) "
        "SELECT 't', '{}', 'delivered', clock_timestamp() FROM generate_series(1, 11000)")
    wait_until(lambda: findings(postroom), 'the statistics')
    only(postroom, 'statistics', 'note')
    postroom.ok('doctor', '--fix')
    wait_until(lambda: not findings(postroom), 'the statistics')


CLOCK = r'''
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *out)
{
	int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int status = real(clock, out);
	if (clock == CLOCK_REALTIME)
		out->tv_sec += atoi(getenv("FAKE_SKEW"));
	return status;
}
'''


@pytest.mark.parametrize('skew, level', [('-3', 'note'), ('20', 'warning')])
def U2_clocks_that_differ_are_found(postroom, tmp_path, skew, level):  # noqa: F811
    only(postroom, 'clock', level, env={'LD_PRELOAD': shim(tmp_path, CLOCK), 'FAKE_SKEW': skew})


def U2_strict_fails_for_warnings(postroom, session):  # noqa: F811
    session('BEGIN', 'SELECT txid_current()')
    assert postroom('doctor', *NOW).code == 0
    assert postroom('doctor', '--strict', *NOW).code == 1
    assert postroom('doctor', '--strict').code == 0


def U2_inspection_writes_nothing(postroom, sql):  # noqa: F811
    postroom.enqueue('orders')
    # A session that writes, or locks a row, draws a number. Autovacuum does so too, now and then.
    def draws_none():
        before, = sql('SELECT txid_current()')[0]
        examine(postroom, '--verbose')
        after, = sql('SELECT txid_current()')[0]
        return after == before + 1
    wait_until(draws_none, 'an inspection without a transaction number')


def U2_locked_tables_are_skipped_and_their_blocker_is_named(postroom, session, mend):  # noqa: F811
    blocker = session('BEGIN', 'LOCK TABLE postroom_outbox, postroom_inbox, postroom_lanes IN ACCESS EXCLUSIVE MODE')
    found = {one['check']: one for one in examine(postroom, *NOW)}
    assert {name: found[name]['level'] for name in ('schema', 'stranded', 'delivering', 'blocked')} == {
        'schema': 'skipped', 'stranded': 'skipped', 'delivering': 'skipped', 'blocked': 'warning'}
    assert found['blocked']['command'] == f'SELECT pg_terminate_backend({blocker.get_backend_pid()});'
    mend(found['blocked'])
    wait_until(lambda: not findings(postroom, *NOW), 'the session to end')


def U2_one_locked_table_does_not_keep_the_other_checks(postroom, session, mend):  # noqa: F811
    """Checks that read it give up, and nothing waits behind them."""
    blocker = session('BEGIN', 'LOCK TABLE postroom_outbox IN ACCESS EXCLUSIVE MODE')
    found = {one['check']: one for one in examine(postroom, *NOW)}
    assert {name: found[name]['level'] for name in ('schema', 'stranded', 'delivering', 'claim-plans', 'retention')} == {
        'schema': 'ok', **dict.fromkeys(('stranded', 'delivering', 'claim-plans', 'retention'), 'skipped')}
    assert {found[name]['level'] for name in ('handling', 'privileges', 'durability')} == {'ok'}
    assert found['blocked']['command'] == f'SELECT pg_terminate_backend({blocker.get_backend_pid()});'
    mend(found['blocked'])
    wait_until(lambda: not findings(postroom, *NOW), 'the session to end')


def U2_inspection_consists_of_statements_that_read(postroom, place, database, sql):  # noqa: F811
    sql(f"ALTER DATABASE {database} SET log_statement = 'all'")
    start = len(place.log())
    examine(postroom)
    words = set(re.findall(r'LOG:  (?:statement|execute [^:]*): (\w+)', place.log()[start:]))
    assert {'BEGIN', 'SELECT', 'EXPLAIN'} <= words <= {
        'BEGIN', 'SELECT', 'WITH', 'EXPLAIN', 'PREPARE', 'ROLLBACK', 'SET'}, words


def U2_lock_that_stops_writers_only_skips_the_plans_of_claims(postroom, session, mend):  # noqa: F811
    blocker = session('BEGIN', 'LOCK TABLE postroom_outbox IN SHARE MODE')
    found = {one['check']: one for one in findings(postroom, *NOW)}
    assert {name: one['level'] for name, one in found.items()} == {
        'blocked': 'warning', 'idle-in-transaction': 'warning', 'claim-plans': 'skipped'}, found
    assert str(blocker.get_backend_pid()) in found['blocked']['title'] and 'lock timeout' in found['claim-plans']['detail']
    mend(found['blocked'])
    wait_until(lambda: not findings(postroom, *NOW), 'the session to end')


def U2_lock_of_another_table_is_not_blamed(postroom, session, sql):  # noqa: F811
    sql('CREATE TABLE own (n int)')
    session('BEGIN', 'LOCK TABLE own IN ACCESS EXCLUSIVE MODE')
    assert not [one for one in findings(postroom, *NOW) if one['check'] == 'blocked']


def as_one(finding):
    """An object's definition has semicolons of its own: it is one command."""
    assert finding['command'].endswith(';')
    return finding['command']


def U2_each_missing_column_is_found(postroom, sql):  # noqa: F811
    columns = sql("SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
                  "WHERE relname LIKE 'postroom%' AND relkind = 'r' AND attnum > 0 "
                  "AND relname NOT IN ('postroom_migrations', 'postroom_lanes')")
    assert len(columns) > 75
    for table, name in columns:
        sql(f'ALTER TABLE {table} RENAME {name} TO "{name} then"')
    found = [one for one in findings(postroom) if one['check'] == 'objects']
    assert {one['title'] for one in found} == {f'Column {name} of {table} is missing' for table, name in columns}
    assert {one['level'] for one in found} == {'problem'}
    for table, name in columns:
        sql(f'ALTER TABLE {table} RENAME "{name} then" TO {name}')
    is_quiet(postroom)


@pytest.mark.parametrize('statement, level, title', [
    ('ALTER TABLE postroom_attempts DROP COLUMN error', 'problem', 'Column error of postroom_attempts is missing'),
    ('ALTER TABLE postroom_outbox ALTER topic DROP NOT NULL', 'warning', 'Column topic of postroom_outbox accepts NULL'),
    ('ALTER TABLE postroom_outbox ALTER id DROP DEFAULT', 'problem', 'Column id of postroom_outbox has another default'),
    ("ALTER TABLE postroom_outbox ALTER status SET DEFAULT 'dead'", 'problem',
     'Column status of postroom_outbox has another default'),
    ('ALTER TABLE postroom_inbox ALTER last_error TYPE varchar(10)', 'warning',
     'Column last_error of postroom_inbox has another type'),
    ('ALTER TABLE postroom_outbox DROP CONSTRAINT "locked_by, locked_until: set while processing, and only then"',
     'warning', 'Constraint "locked_by, locked_until: set while processing, and only then" of postroom_outbox is missing'),
    ('ALTER DOMAIN postroom_status DROP CONSTRAINT "status: pending, processing, delivered or dead"', 'warning',
     'Constraint "status: pending, processing, delivered or dead" of postroom_status is missing'),
    ('ALTER TABLE postroom_outbox DROP CONSTRAINT postroom_outbox_pkey', 'warning',
     'Constraint "postroom_outbox_pkey" of postroom_outbox is missing'),
    ('ALTER TABLE postroom_dedupe DROP CONSTRAINT postroom_dedupe_pkey', 'problem',
     'Table postroom_dedupe has no primary key'),
    ('DROP VIEW postroom_messages', 'problem', 'View postroom_messages is missing'),
    ('DROP SEQUENCE postroom_inbox_notify_until CASCADE', 'problem', 'Sequence postroom_inbox_notify_until is missing'),
    ('DROP FUNCTION postroom_enqueue', 'problem', 'Function postroom_enqueue is missing'),
    ('DROP TABLE postroom_inbox_purged', 'problem', 'Table postroom_inbox_purged is missing')])
def U2_missing_or_altered_object_is_found_and_restored_by_its_advice(
        postroom, place, database, sql, statement, level, title):  # noqa: F811
    sql(statement)
    found = [one for one in findings(postroom) if one['check'] == 'objects']
    assert [(one['level'], one['title']) for one in found] == [(level, title)]
    place.sql(database, as_one(found[0]))
    for one in findings(postroom):  # a trigger that CASCADE dropped too
        assert one['check'] == 'triggers'
        place.sql(database, as_one(one))
    is_quiet(postroom)
    postroom.enqueue('orders', '{}', '--key', 'k', '--dedupe-key', 'd')
    postroom.ok('relay', '--to', 'null:', '--drain')


def U2_altered_function_is_found_and_restored_by_its_advice(postroom, place, database, sql):  # noqa: F811
    sql("CREATE OR REPLACE FUNCTION postroom_new() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    found = only(postroom, 'objects', 'warning')
    assert found['title'] == 'Function postroom_new differs from its definition'
    place.sql(database, as_one(found))
    is_quiet(postroom)


def U2_missing_lanes_are_found_and_restored_by_the_advice(postroom, place, database, sql):  # noqa: F811
    sql('TRUNCATE postroom_lanes')
    found = {one['check']: one for one in findings(postroom)}
    assert found['schema']['level'] == 'problem' and found['schema']['title'] == 'The lanes cannot be read'
    place.sql(database, as_one(found['schema']))
    is_quiet(postroom)
    sql('DROP TABLE postroom_lanes CASCADE')
    found = [one for one in findings(postroom) if one['check'] == 'objects']
    assert [one['title'] for one in found] == ['Table postroom_lanes is missing', 'View postroom_messages is missing']
    for one in found:
        place.sql(database, as_one(one))
    lanes, = [one for one in findings(postroom) if one['check'] == 'schema']
    place.sql(database, as_one(lanes))
    is_quiet(postroom)


def U2_two_hundred_thousand_rows_are_read_by_index(postroom, place, database, sql):  # noqa: F811
    for status, done in (('pending', 'NULL'), ('delivered', 'clock_timestamp()'), ('dead', 'NULL')):
        sql(f"INSERT INTO postroom_outbox (topic, payload, key, status, delivered_at) SELECT 't', '{{}}', "
            f"CASE WHEN n % 2 = 0 THEN 'k' || n END, '{status}', {done} FROM generate_series(1, 70000) AS n")
    for name, value in (('session_preload_libraries', 'auto_explain'), ('auto_explain.log_min_duration', '0'),
                        ('auto_explain.log_analyze', 'on'), ('auto_explain.log_nested_statements', 'on')):
        sql(f"ALTER DATABASE {database} SET {name} = '{value}'")
    start = len(place.log())
    examine(postroom)
    plans = place.log()[start:]
    assert plans.count('Query Text: ') > 25, plans[-3000:]
    assert not re.findall(r'Seq Scan on postroom_(?:outbox|inbox|history|dedupe).*', plans)
    rows = [int(number) for number in re.findall(r'on postroom_(?:outbox|history|inbox).*actual time=\S+ rows=(\d+)', plans)]
    assert rows and max(rows) <= 1000
