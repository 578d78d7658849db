# SPDX-License-Identifier: Apache-2.0
"""postroom adopt gives way to producers and standbys, and keeps the order of a key over the cut."""
import os
import threading

import pytest

from adopt.metrics import count_rejected
from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, server, shared, sql, template, unmigrated  # noqa: F401  fixtures
from pgsql.server import Server, binaries, run_as_server

TOOL = os.path.join(binaries(), 'pg_basebackup')
INSERT = "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')"


@pytest.fixture
def standby(server):  # noqa: F811
    if not os.path.exists(TOOL):
        pytest.skip('pg_basebackup is not installed')
    standby = Server()
    try:
        run_as_server(TOOL, '-h', server.host, '-U', 'postgres', '-D', standby.data, '-R', '-X', 'stream', '-c', 'fast', '--no-sync')
        standby.configure(unix_socket_directories=f"'{standby.host}'")
        standby.start()
        wait_until(lambda: server.sql('postgres', 'SELECT count(*) FROM pg_stat_replication')[0][0], 'the standby')
        yield standby
    finally:
        standby.remove()


def read_error(process):
    """One line that the program has written to stderr."""
    return process.stderr.readline().decode()


def U2_backlog_pauses_while_a_standby_lags(server, standby, postroom, sql):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, payload) SELECT 'old', '{}' FROM generate_series(1, 100)")
    wait_until(lambda: standby.sql('postgres', 'SELECT pg_last_wal_replay_lsn() IS NOT NULL')[0][0], 'replay')
    standby.sql('postgres', 'SELECT pg_wal_replay_pause()')

    def lags():
        sql('SELECT pg_logical_emit_message(false, %s, %s)', 'test', 'x')
        return server.sql('postgres', "SELECT count(*) FROM pg_stat_replication WHERE replay_lag > interval '2 s'")[0][0]
    wait_until(lags, 'the standby to lag')
    adopt = postroom.start('adopt', 'outbox', '--yes', '--chunk', '10', *MAPPING)
    while 'paused: a standby lags' not in (line := read_error(adopt)):
        assert line, 'adopt has ended'
    # New rows are mirrored meanwhile; waiting rows are not moved.
    sql(INSERT)
    assert sql('SELECT topic FROM postroom_outbox') == [('a',)] and adopt.poll() is None
    standby.sql('postgres', 'SELECT pg_wal_replay_resume()')
    assert adopt.wait() == 0
    assert sql("SELECT count(*) FROM outbox WHERE status = 'pending'") == [(0,)]


def U2_backlog_pauses_while_a_session_waits_for_a_lock(postroom, place, database, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    sql('ALTER TABLE outbox DISABLE TRIGGER postroom_adopt_insert')
    sql("INSERT INTO outbox (topic, payload) SELECT 'old', '{}' FROM generate_series(1, 100)")
    sql('ALTER TABLE outbox ENABLE TRIGGER postroom_adopt_insert')
    holder, waiter = place.connect(database), place.connect(database)
    holder.autocommit = waiter.autocommit = False
    holder.cursor().execute(INSERT)
    waiting = threading.Thread(target=lambda: waiter.cursor().execute('LOCK TABLE outbox IN SHARE MODE'))
    waiting.start()
    wait_until(lambda: sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass")[0][0], 'the waiter')
    adopt = postroom.start('adopt', 'outbox', '--yes', '--chunk', '10')
    while 'paused: another session waits' not in (line := read_error(adopt)):
        assert line, 'adopt has ended'
    assert sql("SELECT count(*) FROM postroom_outbox WHERE topic = 'old'") == [(0,)]
    holder.rollback()
    waiting.join()
    waiter.rollback()
    assert adopt.wait() == 0
    assert sql("SELECT count(*) FROM postroom_outbox WHERE topic = 'old'") == [(100,)]


@pytest.mark.parametrize('options', [('--yes', *MAPPING), ('--keys', '--yes'), ('--undo', '--yes')], ids=['mirror', 'keys', 'undo'])
def U2_writers_continue_while_adopt_waits_for_a_transaction(postroom, place, database, sql, options):  # noqa: F811
    sql(LAYOUT)
    if '--undo' in options:
        postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    holder = place.connect(database)
    holder.autocommit = False
    holder.cursor().execute(INSERT)
    adopt = postroom.start('adopt', 'outbox', *options)
    for _ in range(5):
        wait_until(lambda: sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox'::regclass")[0][0],
                   'adopt to wait for the lock')
        # It queues behind the command, which gives up although the holder is still there.
        sql(INSERT)
    assert adopt.poll() is None
    holder.commit()
    assert adopt.wait() == 0
    assert sql('SELECT count(*) FROM outbox') == [(6,)]


def U2_messages_of_a_key_keep_their_order_over_the_cut(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    for n in 3, 1, 2:
        sql("INSERT INTO outbox (topic, key, payload, created_at) VALUES ('a', 'k', %s, now() - interval '1 h' + %s * interval '1 s')", str(n), n)
    postroom.ok('adopt', 'outbox', '--yes', '--chunk', '1', *MAPPING)
    sql("INSERT INTO outbox (topic, key, payload) VALUES ('a', 'k', '4'), ('a', 'k', '5')")
    for kind in 'row', 'lane':
        postroom.ok('lease', kind)
        sent = postroom.ok('relay', '--to', 'stdout:', '--drain').objects
        assert [message['payload'] for message in sent] == ([1, 2, 3, 4, 5] if kind == 'row' else []), kind


def U2_metrics_count_rejected_rows(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    assert count_rejected(postroom) == 0
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    sql("INSERT INTO outbox (topic, payload) VALUES (repeat('x', 300), '{}'), ('fine', '{}')")
    assert count_rejected(postroom) == 1
