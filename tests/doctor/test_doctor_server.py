# SPDX-License-Identifier: Apache-2.0
"""postroom doctor: conditions of a PostgreSQL server, its settings, standbys and poolers."""
import contextlib
import os
import subprocess
import uuid

import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, is_quiet, only, shim, statements
from doctor.pgsql_place import NOW, mend, place, session  # noqa: F401  fixtures
from pgsql.conftest import database, db, postroom, sql, template, unmigrated  # noqa: F401  fixtures
from pgsql.server import Server, binaries, directory_for_server, run_as_server
from pgsql.test_pgbouncer import TOOL, Bouncer

needs_pooler = pytest.mark.skipif(not TOOL, reason='pgbouncer is not installed')


def of(check, program, *args, **options):
    return [one for one in findings(program, *args, **options) if one['check'] == check]


@contextlib.contextmanager
def system_settings(place, **settings):  # noqa: F811
    """ALTER SYSTEM, until the end."""
    def change(words):
        for statement in [*words, 'SELECT pg_reload_conf()']:
            place.sql('postgres', statement)
    change(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items())
    try:
        for name, value in settings.items():
            wait_until(lambda name=name, value=value: place.sql('postgres', f'SHOW {name}') == [(value,)], name)
        yield
    finally:
        change(f'ALTER SYSTEM RESET {name}' for name in settings)
        for name, value in settings.items():
            wait_until(lambda name=name, value=value: place.sql('postgres', f'SHOW {name}') != [(value,)], name)


def U2_dead_rows_that_vacuum_left_are_found(postroom, sql, mend):  # noqa: F811
    sql('ALTER TABLE postroom_outbox SET (autovacuum_vacuum_threshold = 2000000000, '
        'autovacuum_vacuum_insert_threshold = 2000000000, autovacuum_analyze_threshold = 2000000000)')
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) "
        "SELECT 't', '{}', 'delivered', clock_timestamp() FROM generate_series(1, 101000)")
    sql('DELETE FROM postroom_outbox')
    found, = wait_until(lambda: of('dead-rows', postroom), 'the statistics')
    assert found['level'] == 'warning' and 'postroom_outbox' in found['title']
    mend(found)
    wait_until(lambda: not of('dead-rows', postroom), 'the statistics')


def U2_role_setting_that_ends_idle_sessions_is_found(postroom, database, sql, mend):  # noqa: F811
    sql(f"ALTER DATABASE {database} SET idle_session_timeout = '5s'")
    mend(only(postroom, 'session-settings', 'warning'))
    is_quiet(postroom)


def U2_bloated_index_is_found_and_rebuilt_by_its_advice(postroom, sql, mend):  # noqa: F811
    sql("INSERT INTO postroom_history (id, delivered_at) SELECT gen_random_uuid(), "
        "clock_timestamp() + n * interval '1 us' FROM generate_series(1, 600000) AS n")
    sql('DELETE FROM postroom_history WHERE id NOT IN (SELECT id FROM postroom_history LIMIT 10)')
    sql('VACUUM (ANALYZE) postroom_history')
    found = of('bloat', postroom)
    assert found and {one['level'] for one in found} == {'note'}, found
    for one in found:
        mend(one)
    sql('VACUUM (ANALYZE) postroom_history')
    assert of('bloat', postroom) == []


def U2_checkpoints_forced_by_wal_are_noted(postroom, place, sql, mend):  # noqa: F811
    newer = sql("SELECT current_setting('server_version_num')::int >= 170000") == [(True,)]
    sql(f"SELECT pg_stat_reset_shared('{'checkpointer' if newer else 'bgwriter'}')")
    size, = sql('SHOW max_wal_size')[0]
    try:
        for _ in range(101):
            sql('CHECKPOINT')
        found, = wait_until(lambda: of('checkpoints', postroom), 'the statistics')
        assert found['level'] == 'note'
        mend(found)
        assert size == '1GB'
        wait_until(lambda: sql('SHOW max_wal_size') == [('2GB',)], 'the setting')
        wait_until(lambda: not of('checkpoints', postroom), 'the statistics')
    finally:
        place.sql('postgres', 'ALTER SYSTEM RESET max_wal_size')
        place.sql('postgres', 'SELECT pg_reload_conf()')


def U2_changed_collation_version_is_noted(place, tmp_path):  # noqa: F811
    """A database with a locale of ICU: C.UTF-8 has no version."""
    name = f'test_{uuid.uuid4().hex}'
    place.sql('postgres', f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'")
    program = Postroom(place.url(name), tmp_path)
    program.ok('migrate')
    is_quiet(program)
    place.sql('postgres', f"UPDATE pg_database SET datcollversion = '1.0' WHERE datname = '{name}'")
    for statement in statements(only(program, 'collation', 'note')['command']):
        place.sql(name, statement)
    is_quiet(program)


@pytest.mark.parametrize('xid, level', [(17000, 'warning'), (34000, 'problem')])
def U2_old_transaction_ids_are_found_and_frozen_by_the_advice(template, tmp_path, xid, level):  # noqa: F811
    """The counter is set forward, to the first id of a page of the commit log; the server then has no old page to read."""
    server = Server(template)
    try:
        server.configure(fsync='on', autovacuum_freeze_max_age=2000000000)
        run_as_server(os.path.join(binaries(), 'pg_checksums'), '--enable', '--no-sync', '-D', server.data)
        run_as_server(os.path.join(binaries(), 'pg_resetwal'), '-f', '-x', str(xid * 32768), '-D', server.data)
        program = Postroom(server.start().url('postgres'), tmp_path)
        program.ok('migrate')
        found = only(program, 'xid-age', level)
        for statement in statements(found['command']):
            server.sql('postgres', statement)
        is_quiet(program)
    finally:
        server.remove()


def U2_filling_notification_queue_is_found(postroom, session, sql):  # noqa: F811
    """A session that listens and does not end its transaction. The queue has 8 GB: a tenth of it is written."""
    listener = session('LISTEN channel', 'BEGIN', 'SELECT 1')
    if sql("SELECT count(*) FROM pg_settings WHERE name = 'max_notify_queue_pages'") != [(0,)]:
        pytest.skip('the queue of this server may have another size')
    for part in range(11):
        sql(f"SELECT count(pg_notify('channel', repeat('x', 7900) || n)) FROM generate_series({part * 10000}, {part * 10000 + 9999}) n")
    found, = of('notify-queue', postroom)
    assert found['level'] == 'warning'
    oldest = sql(*statements(found['command']))
    assert listener.get_backend_pid() in [row[0] for row in oldest], oldest
    listener.close()
    wait_until(lambda: not of('notify-queue', postroom), 'the queue to be emptied')


def U2_missing_checksums_are_noted_and_enabled_by_the_advice(template, tmp_path):  # noqa: F811
    server = Server(template)
    try:
        server.configure(fsync='on')
        program = Postroom(server.start().url('postgres'), tmp_path)
        program.ok('migrate')
        found = only(program, 'checksums', 'note')
        server.stop()
        run_as_server('sh', '-c', found['command'], env={**os.environ, 'PATH': f'{binaries()}:{os.environ["PATH"]}'})
        server.start()
        is_quiet(program)
    finally:
        server.remove()


CLOCK = r'''
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long skew(void) { const char *text = getenv("FAKE_SKEW"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec *out)
{
	int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int status = real(clock, out);
	if (clock == CLOCK_REALTIME)
		out->tv_sec += skew();
	return status;
}
int gettimeofday(struct timeval *out, void *zone)
{
	int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
	int status = real(out, zone);
	out->tv_sec += skew();
	return status;
}
'''


def U2_version_without_maintenance_is_noted(template, tmp_path, monkeypatch):  # noqa: F811
    """Five years from now, for the server and for the program."""
    server = Server(template)
    try:
        server.configure(fsync='on')
        run_as_server(os.path.join(binaries(), 'pg_checksums'), '--enable', '--no-sync', '-D', server.data)
        server.start()
        program = Postroom(server.url('postgres'), tmp_path)
        program.ok('migrate')
        is_quiet(program)
        server.stop()
        library = directory_for_server()
        monkeypatch.setenv('LD_PRELOAD', shim(tmp_path, CLOCK, library))
        monkeypatch.setenv('FAKE_SKEW', str(5 * 366 * 86400))
        server.start()
        assert 'no longer maintained' in only(program, 'server-version', 'note')['title']
        assert server.sql('postgres', 'SELECT extract(year FROM clock_timestamp()) > extract(year FROM %s::timestamptz) + 3',
                          '2026-11-18') == [(True,)]
    finally:
        monkeypatch.undo()
        server.remove()


@contextlib.contextmanager
def standby_of(place, *options, **settings):  # noqa: F811
    tool = os.path.join(binaries(), 'pg_basebackup')
    if not os.path.exists(tool):
        pytest.skip('pg_basebackup is not installed')
    standby = Server()
    try:
        run_as_server(tool, '-h', place.host, '-U', 'postgres', '-D', standby.data, '-R', '-X', 'stream', '-c', 'fast',
                      '--no-sync', *options)
        standby.configure(unix_socket_directories=f"'{standby.host}'", hot_standby_feedback='on',
                          wal_receiver_status_interval='1s', **settings)
        yield standby.start()
    finally:
        standby.remove()


def spend_ids(sql):  # noqa: F811
    """More than 100000 transaction ids."""
    sql('CREATE TABLE IF NOT EXISTS spent (n int)')
    sql('DO $$ BEGIN FOR i IN 1..100100 LOOP BEGIN INSERT INTO spent VALUES (i); EXCEPTION WHEN others THEN NULL; END; '
        'END LOOP; END $$')


def U2_standby_is_read_only_and_its_query_holds_back_vacuum(postroom, place, database, sql, tmp_path):  # noqa: F811
    with standby_of(place) as standby:
        wait_until(lambda: standby.sql('postgres', 'SELECT pg_last_wal_replay_lsn() >= %s',
                                       place.sql('postgres', 'SELECT pg_current_wal_lsn()')[0][0]) == [(True,)], 'the standby')
        found = only(Postroom(standby.url(database), tmp_path), 'primary', 'problem')
        assert 'standby' in found['title']
        query = standby.connect(database)
        with query.cursor() as cursor:
            cursor.execute('BEGIN ISOLATION LEVEL REPEATABLE READ')
            cursor.execute('SELECT count(*) FROM postroom_outbox')
        wait_until(lambda: sql('SELECT 1 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL'), 'the feedback')
        spend_ids(sql)
        found, = wait_until(lambda: of('vacuum-horizon', postroom), 'the feedback')
        assert found['title'].startswith('Standby ') and 'hot_standby_feedback' in found['advice'], found
        query.close()
        wait_until(lambda: not of('vacuum-horizon', postroom), 'the next feedback')


def U2_slot_of_a_lost_standby_holds_back_vacuum(postroom, place, sql, mend):  # noqa: F811
    with standby_of(place, '-C', '-S', 'lost') as standby:
        wait_until(lambda: sql("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'lost' AND xmin IS NOT NULL"), 'the feedback')
        query = standby.connect('postgres')
        with query.cursor() as cursor:
            cursor.execute('BEGIN ISOLATION LEVEL REPEATABLE READ')
            cursor.execute('SELECT 1')
        spend_ids(sql)
        found, = wait_until(lambda: of('vacuum-horizon', postroom), 'the feedback')
        assert found['command'] is None and 'standby' in found['advice'], found
        query.close()
        wait_until(lambda: not of('vacuum-horizon', postroom), 'the next feedback')
        standby.stop()
        spend_ids(sql)
        wait_until(lambda: sql("SELECT 1 FROM pg_replication_slots WHERE NOT active"), 'the slot to be inactive')
        found = {one['check']: one for one in findings(postroom)}
        assert set(found) == {'vacuum-horizon', 'wal-slots'}, found
        assert found['vacuum-horizon']['title'] == 'Replication slot "lost" holds back vacuum'
        assert 'transactions behind' in found['vacuum-horizon']['detail']
        mend(found['vacuum-horizon'])
        wait_until(lambda: not findings(postroom), 'the slot to be gone')


def U2_slot_that_lost_its_wal_is_a_problem(postroom, place, sql, mend):  # noqa: F811
    with system_settings(place, max_slot_wal_keep_size='1MB'):
        sql("SELECT pg_create_physical_replication_slot('behind', true)")

        def lost():
            sql('SELECT pg_switch_wal()')
            sql('CHECKPOINT')
            return sql("SELECT 1 FROM pg_replication_slots WHERE wal_status IN ('unreserved', 'lost')")
        wait_until(lost, 'the server to give up the WAL of the slot')
        found = only(postroom, 'wal-slots', 'problem')
        mend(found)
        is_quiet(postroom)


def U2_commits_that_do_not_wait_for_the_synchronous_standby_are_found(postroom, place, database, mend):  # noqa: F811
    with system_settings(place, synchronous_commit='local', synchronous_standby_names='missing'):
        mend(only(postroom, 'durability', 'warning'))
        is_quiet(postroom)
        place.sql('postgres', f'ALTER ROLE postgres IN DATABASE {database} RESET ALL')


def U2_producer_role_without_synchronous_commit_is_noted(postroom, place, sql, mend):  # noqa: F811
    sql('CREATE ROLE hasty')
    try:
        sql('ALTER ROLE hasty SET synchronous_commit = off')
        found = only(postroom, 'durability', 'note')
        assert '"hasty"' in found['title']
        mend(found)
        is_quiet(postroom)
    finally:
        sql('DROP ROLE hasty')


def U2_disabled_counting_of_changes_is_found(postroom, place, mend):  # noqa: F811
    with system_settings(place, track_counts='off'):
        mend(only(postroom, 'autovacuum', 'warning'))
        wait_until(lambda: not findings(postroom), 'the setting')


def U2_role_with_too_few_connections_is_found(postroom, place, sql, mend):  # noqa: F811
    sql('ALTER ROLE postgres CONNECTION LIMIT 2')
    mend(only(postroom, 'connections', 'warning'))
    is_quiet(postroom)


def U2_nearly_all_connections_in_use_are_found(postroom, session):  # noqa: F811
    opened = [session() for _ in range(80)]
    assert 'connections are in use' in only(postroom, 'connections', 'warning')['title']
    for connection in opened:
        connection.close()
    wait_until(lambda: not findings(postroom), 'the sessions to end')


def U2_publication_of_the_tables_is_noted(postroom, sql):  # noqa: F811
    sql('CREATE PUBLICATION everything FOR TABLE postroom_outbox')
    assert '"everything"' in only(postroom, 'table-kind', 'note')['title']
    sql('ALTER PUBLICATION everything DROP TABLE postroom_outbox')
    is_quiet(postroom)


@pytest.mark.parametrize('lease', ['row', 'lane'])
def U2_planner_setting_that_makes_claims_scan_tables_is_found(postroom, database, sql, mend, lease):  # noqa: F811
    postroom.ok('lease', lease)
    sql(f'ALTER DATABASE {database} SET enable_tidscan = off')
    found = findings(postroom)
    assert found and {(one['check'], one['level']) for one in found} == {('claim-plans', 'problem')}, found
    assert 'Claims from postroom_inbox do not use their index' in [one['title'] for one in found]
    assert 'Seq Scan on postroom_' in found[0]['detail']
    mend(found[0])
    is_quiet(postroom)


def U2_added_index_that_claims_use_is_found_and_dropped_by_the_advice(postroom, sql, mend):  # noqa: F811
    sql("CREATE INDEX mine ON postroom_outbox (next_attempt_at, seq) WHERE status = 'pending'")
    found = only(postroom, 'claim-plans', 'problem')
    assert '"Index Scan using mine on postroom_outbox"' in found['detail']
    mend(found)
    is_quiet(postroom)


def U2_unusual_planner_costs_are_listed_by_the_advice(postroom, database, sql):  # noqa: F811
    sql("INSERT INTO postroom_outbox (topic, payload, key, next_attempt_at) SELECT 't', '{}', 'k' || n, "
        "clock_timestamp() + interval '1 day' FROM generate_series(1, 5000) AS n")
    sql('ANALYZE postroom_outbox')
    is_quiet(postroom)
    sql(f'ALTER DATABASE {database} SET random_page_cost = 1e9')
    found = findings(postroom)
    assert found and {one['check'] for one in found} == {'claim-plans'}, found
    assert [row[0] for row in sql(*statements(found[0]['command']))] == ['random_page_cost']
    sql(f'ALTER DATABASE {database} RESET random_page_cost')
    is_quiet(postroom)


def U2_schema_of_a_newer_program_is_a_problem(postroom, sql):  # noqa: F811
    sql(f'INSERT INTO postroom_migrations SELECT (jsonb_populate_record(m, \'{{"version": 900, "compatible_with": 900}}\')).* '
        'FROM postroom_migrations AS m LIMIT 1')
    found = [one for one in findings(postroom) if one['level'] == 'problem']
    assert [one['check'] for one in found] == ['schema'] and 'newer postroom' in found[0]['advice'], found
    sql('DELETE FROM postroom_migrations WHERE version = 900')
    is_quiet(postroom)


def U2_sessions_of_other_databases_are_listed_and_not_blamed(postroom, session):  # noqa: F811
    holder = session('BEGIN', 'SELECT txid_current()', name='postgres')
    is_quiet(postroom, *NOW)
    horizon, = [one for one in examine(postroom, *NOW) if one['check'] == 'vacuum-horizon']
    assert horizon['level'] == 'ok' and f'session {holder.get_backend_pid()} of database "postgres"' in horizon['detail']


def U2_size_and_age_of_each_table_are_listed(postroom):  # noqa: F811
    postroom.enqueue('orders')
    sizes, = [one for one in examine(postroom) if one['check'] == 'sizes']
    assert sizes['level'] == 'ok' and 'inbox: ' in sizes['detail'] and 'history: ' in sizes['detail']
    assert 'outbox: ' in sizes['detail'] and 'oldest row from 20' in sizes['detail'] and 'no rows' in sizes['detail']


@needs_pooler
def U2_pooler_is_noted_and_its_console_is_closed_to_strangers(postroom, place, database):  # noqa: F811
    bouncer = Bouncer(place)
    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        assert {one['check']: one['level'] for one in findings(postroom)} == {'pooler': 'note', 'pools': 'skipped'}
        postroom.db = place.url(database)
        is_quiet(postroom)
    finally:
        bouncer.remove()


@needs_pooler
def U2_small_pool_is_noted_and_enlarged_by_the_advice(postroom, place, database):  # noqa: F811
    bouncer = Bouncer(place, 'default_pool_size = 1', 'admin_users = postgres')
    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        found, = of('pools', postroom)
        assert found['level'] == 'note'
        for statement in statements(found['command']):
            subprocess.run(['psql', '-h', bouncer.host, '-p', '6432', '-U', 'postgres', '-c', statement, 'pgbouncer'], check=True,
                           stdout=subprocess.DEVNULL)
        assert of('pools', postroom) == []
    finally:
        bouncer.remove()


@needs_pooler
def U2_clients_that_wait_for_the_pool_are_found(postroom, place, database, sql):  # noqa: F811
    sql('CREATE ROLE app LOGIN')
    bouncer = Bouncer(place, 'stats_users = postgres')
    opened = []

    def connect():
        command = ['psql', '-qAt', '-h', bouncer.host, '-p', '6432', '-U', 'app', database]
        opened.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        opened[-1].stdin.write('BEGIN;\nSELECT 1;\n')
        opened[-1].stdin.flush()
        return opened[-1]

    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        assert of('pools', postroom) == []
        for _ in range(2):
            assert connect().stdout.readline() == '1\n'
        connect()
        found, = wait_until(lambda: of('pools', postroom), 'the wait')
        assert found['level'] == 'warning' and found['title'].startswith('1 clients wait'), found
        opened[0].stdin.close()
        assert opened[2].stdout.readline() == '1\n'
        wait_until(lambda: not of('pools', postroom), 'the wait to end')
    finally:
        for process in opened:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
        bouncer.remove()
        place.sql('postgres', 'DROP ROLE app')


@needs_pooler
def U2_isolation_level_that_disturbs_a_relay_behind_a_pooler_is_found(postroom, place, database, sql, mend):  # noqa: F811
    sql(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
    is_quiet(postroom)
    bouncer = Bouncer(place)
    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        found, = of('session-settings', postroom)
        mend(found)
    finally:
        bouncer.remove()
    bouncer = Bouncer(place)
    try:
        postroom.db = bouncer.url(database)
        wait_until(lambda: postroom('stats').code == 0, 'the pooler to start')
        assert of('session-settings', postroom) == []
    finally:
        bouncer.remove()


def U2_event_without_consumer_is_found(postroom):  # noqa: F811
    for handler in ('b', 'a', 'c'):
        postroom.ok('inbox', 'submit', handler, 'id', '{}')
    is_quiet(postroom)
    wait_until(lambda: len(of('handling', postroom, *NOW)) == 3, 'a millisecond')
    found = of('handling', postroom, *NOW)
    assert {one['title'] for one in found} == {f'No consumer handles the events of handler "{name}"' for name in 'abc'}
    assert {one['level'] for one in found} == {'warning'}
    rows = postroom.ok(*found[0]['command'].replace("'", '').split()[1:], '--json').objects
    assert len(rows) == 1
    for handler in 'abc':
        postroom.ok('consume', '--handler', handler, '--exec', 'true', '--drain')
    assert of('handling', postroom, *NOW) == []


def U2_old_delivered_rows_of_outbox_and_history_are_one_finding(postroom, sql):  # noqa: F811
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) "
        "VALUES ('t', '{}', 'delivered', clock_timestamp() - interval '20 days')")
    sql("INSERT INTO postroom_history (id, seq, namespace, topic, payload, content_type, headers, attempts, claims, "
        "next_attempt_at, created_at, delivered_at) SELECT gen_random_uuid(), 1, 'default', 't', '{}', 'application/json', '{}', "
        "1, 1, t, t, t FROM (SELECT clock_timestamp() - interval '21 days') AS x(t)")
    found = only(postroom, 'retention', 'note')
    postroom.ok(*found['command'].split()[1:])
    is_quiet(postroom)


def U2_old_dedupe_keys_are_noted_and_purged_by_a_relay(postroom, sql):  # noqa: F811
    postroom.enqueue('orders', '{}', '--dedupe-key', 'kept')
    sql("INSERT INTO postroom_dedupe (namespace, topic, dedupe_key, id, created_at, written) "
        "VALUES ('default', 't', 'gone', gen_random_uuid(), clock_timestamp() - interval '60 days', true)")
    assert 'dedupe keys' in only(postroom, 'retention', 'note')['title']
    relay = postroom.start('relay', '--to', 'null:')
    wait_until(lambda: not findings(postroom), 'the relay to purge')
    relay.terminate()
    relay.communicate()
    assert sql('SELECT dedupe_key FROM postroom_dedupe') == [('kept',)]


def U2_old_dead_letters_are_noted(postroom, sql):  # noqa: F811
    sql("INSERT INTO postroom_outbox (topic, payload, status, created_at) VALUES ('t', '{}', 'dead', clock_timestamp() - interval '40 days')")
    found = only(postroom, 'retention', 'note')
    assert 'dead' in postroom.ok(*found['command'].split()[1:]).out
    postroom.ok('purge', '--status', 'dead', '--yes')
    is_quiet(postroom)
    sql("INSERT INTO postroom_inbox (id, handler_name, status, created_at) VALUES ('i', 'h', 'dead', clock_timestamp() - interval '40 days')")
    found = only(postroom, 'retention', 'note')
    assert 'inbox' in found['title'] and postroom.ok(*found['command'].split()[1:]).lines
    postroom.ok('inbox', 'purge', '--status', 'dead', '--yes')
    is_quiet(postroom)
