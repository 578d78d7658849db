# SPDX-License-Identifier: Apache-2.0
"""migrate, and unusable databases."""
import os
import sqlite3
import stat
import subprocess

import pytest

from conftest import PROGRAM

READERS = [['list'], ['stats'], ['show', 'x'], ['retry', '--dead'], ['purge', '--status', 'dead']]
WRITERS = [['enqueue', 't', '{}'], ['relay', '--to', 'null:', '--drain'], ['migrate']]


@pytest.fixture
def user(tmp_path):
    """Permissions do not restrict root: such tests run the program as an unprivileged user."""
    if os.getuid() != 0:
        return {}
    for path in [tmp_path, *tmp_path.parents][:3]:
        os.chmod(path, os.stat(path).st_mode | stat.S_IXOTH | stat.S_IROTH)
    other = {'user': 65534, 'group': 65534, 'extra_groups': []}
    try:
        subprocess.run([PROGRAM, '--version'], stdout=subprocess.DEVNULL, check=True, **other)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip('the program lies where only root may go')
    return other


def U1_migrate_creates_the_tables_and_is_idempotent(postroom):
    assert postroom.ok('migrate').out == 'applied 001_outbox\n'
    assert postroom.ok('migrate').out == 'the tables are up to date\n'
    postroom.enqueue()
    assert postroom.ok('migrate', '--json').out == ''
    assert len(postroom.rows()) == 1


def U1_migrate_json_lists_applied_migrations(postroom):
    applied = postroom.ok('migrate', '--json').objects
    assert [(m['version'], m['name']) for m in applied] == [(1, 'outbox')]
    assert applied[0]['applied_at'].endswith('Z') and applied[0]['applied_by']
    assert postroom.ok('migrate', '--status', '--json').objects == applied
    assert 'applied' in postroom.ok('migrate', '--status').out


def U1_dry_run_prints_the_sql_and_changes_nothing(postroom, db, tmp_path):
    printed = postroom.ok('migrate', '--dry-run').out
    assert os.listdir(tmp_path) == []
    with sqlite3.connect(':memory:') as memory:
        memory.executescript(printed)
        made = set(memory.execute('SELECT name FROM sqlite_schema'))
    assert postroom.ok('migrate', '--dry-run', '--json').object['sql'] in printed
    postroom.ok('migrate')
    assert postroom.ok('migrate', '--dry-run').out == ''
    with sqlite3.connect(db) as connection:
        assert made <= set(connection.execute('SELECT name FROM sqlite_schema'))


def U1_status_of_a_database_without_tables_is_missing(postroom, sql):
    sql('CREATE TABLE orders (id INTEGER)')
    assert postroom.ok('migrate', '--status').out == '001_outbox  missing\n'
    assert postroom.ok('migrate', '--status', '--json').object['applied_at'] is None


def U1_dry_run_and_status_exclude_each_other(postroom):
    assert 'exclude' in postroom.fails(2, 'migrate', '--dry-run', '--status')


@pytest.mark.parametrize('args', READERS + WRITERS, ids=lambda args: args[0])
def Z1_file_that_is_not_a_database_is_refused_and_unchanged(postroom, db, args):
    db.write_bytes(b'these are not the bytes of a database\n' * 100)
    before = db.read_bytes()
    assert 'not a SQLite database' in postroom.fails(1, *args)
    assert db.read_bytes() == before


@pytest.mark.parametrize('args', READERS + WRITERS, ids=lambda args: args[0])
def U1_newer_schema_is_refused_and_unchanged(postroom, sql, args):
    postroom.enqueue()
    sql("INSERT INTO postroom_migrations VALUES (999, 'future', 1, '9.9.9', 999)")
    line = postroom.fails(1, *args)
    assert '999' in line and 'install postroom 9.9.9 or newer' in line
    assert sql('SELECT status, attempts FROM postroom_outbox') == [('pending', 0)]


def U1_newer_schema_is_reported_by_migrate_status_and_dry_run(postroom, sql):
    postroom.ok('migrate')
    sql("INSERT INTO postroom_migrations VALUES (999, 'future', 1, '9.9.9', 999)")
    assert '999_future' in postroom.ok('migrate', '--status').out
    assert 'install postroom 9.9.9 or newer' in postroom.fails(1, 'migrate', '--dry-run')


def test_directory_as_database_is_refused(postroom, tmp_path):
    for args in (['list'], ['enqueue', 't', '{}']):
        assert str(tmp_path) in postroom.fails(1, '--db', tmp_path, *args)


def test_a_missing_directory_is_named(postroom, tmp_path):
    line = postroom.fails(1, '--db', tmp_path / 'no' / 'where.db', 'enqueue', 't', '{}')
    assert 'where.db' in line and 'directory' in line


def test_a_read_only_directory_is_named(postroom, tmp_path, user):
    closed = tmp_path / 'closed'
    closed.mkdir(mode=0o555)
    line = postroom.fails(1, '--db', closed / 'outbox.db', 'enqueue', 't', '{}', **user)
    assert 'closed/outbox.db' in line and 'directory' in line
    assert os.listdir(closed) == []


def test_a_read_only_file_is_named(postroom, db, tmp_path, user):
    postroom.enqueue()
    os.chmod(tmp_path, 0o777)
    os.chmod(db, 0o444)
    line = postroom.fails(1, 'enqueue', 't', '{}', **user)
    assert 'outbox.db' in line and 'read-only' in line
    assert len(postroom.rows()) == 1


def test_an_unreadable_file_is_named(postroom, db, tmp_path, user):
    postroom.enqueue()
    os.chmod(tmp_path, 0o777)
    os.chmod(db, 0)
    for args in (['list'], ['enqueue', 't', '{}']):
        assert 'outbox.db' in postroom.fails(1, *args, **user)


def test_locked_database_is_reported_with_the_time_waited(postroom, db):
    postroom.enqueue()
    with sqlite3.connect(db, isolation_level=None) as holder:
        holder.execute('BEGIN IMMEDIATE')
        line = postroom.fails(1, 'enqueue', 't', '{}')
        holder.execute('ROLLBACK')
    assert 'locked' in line and 'waited 5' in line
    assert len(postroom.rows()) == 1


def test_lock_released_in_time_is_not_an_error(postroom, db):
    postroom.enqueue()
    with sqlite3.connect(db, isolation_level=None) as holder:
        holder.execute('BEGIN IMMEDIATE')
        producer = postroom.start('enqueue', 't', '{}')
        holder.execute('COMMIT')
        assert producer.wait() == 0
    assert len(postroom.rows()) == 2


def test_a_locked_database_can_be_read(postroom, db):
    id = postroom.enqueue()
    with sqlite3.connect(db, isolation_level=None) as holder:
        holder.execute('BEGIN IMMEDIATE')
        assert postroom.show(id)['status'] == 'pending'
        assert postroom.stats()['pending'] == 1
        holder.execute('ROLLBACK')
