# SPDX-License-Identifier: Apache-2.0
"""postroom doctor on SQLite: each condition is produced, found, mended by the advice, and gone."""
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
import time

import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, is_quiet, only, shim
from small_disk import small_disk

NOW = ('--patience', '1ms')


@pytest.fixture
def migrated(postroom):
    postroom.ok('migrate')
    return postroom


@pytest.fixture
def mend(db):
    def run(finding):
        connection = sqlite3.connect(db, isolation_level=None)
        connection.executescript(finding['command'])
        connection.close()
    return run


def U2_healthy_file_is_quiet(migrated):
    is_quiet(migrated)
    for n in range(20):
        migrated.enqueue('orders', '{}', '--key', f'k{n % 3}')
    migrated.ok('relay', '--to', 'null:', '--drain')
    migrated.enqueue('orders', '{}', '--delay', '1h')
    is_quiet(migrated)
    assert migrated.ok('doctor', '--verbose').out.count('\nok ') > 15


def U2_missing_file_is_a_problem_and_is_not_created(postroom, db):
    found = {one['check']: one['level'] for one in findings(postroom)}
    assert found['database'] == 'problem'
    assert not db.exists()


def U2_missing_tables_are_a_problem_that_migrate_solves(postroom, sql):
    sql('CREATE TABLE application (n)')
    found = {one['check']: one for one in findings(postroom)}
    assert found['schema']['level'] == 'problem' and found['stranded']['level'] == 'skipped'
    postroom.ok(*found['schema']['command'].split()[1:])
    is_quiet(postroom)


def U2_file_that_is_no_database_is_a_problem(postroom, db):
    db.write_text('hello ' * 1000)
    assert {one['check'] for one in findings(postroom)} == {'database'}


def U2_rollback_journal_is_a_problem(migrated, sql, mend):
    assert sql('PRAGMA journal_mode = DELETE') == [('delete',)]
    found = only(migrated, 'journal-mode', 'problem')
    mend(found)
    is_quiet(migrated)


def U2_inspection_of_a_rollback_journal_does_not_wait_for_its_writer(migrated, sql, db):
    sql('PRAGMA journal_mode = DELETE')
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('BEGIN EXCLUSIVE')
    examine(migrated)
    writer.execute('ROLLBACK')
    writer.close()


def U2_files_of_others_are_named():
    """As another user, since nothing is closed to root."""
    if os.geteuid() != 0 or not shutil.which('setpriv'):
        pytest.skip('only root can run the program as another user')
    user = pwd.getpwnam('nobody')
    directory = tempfile.mkdtemp()
    try:
        os.chmod(directory, 0o755)
        owner = Postroom(f'{directory}/outbox.db', directory)
        owner.ok('migrate')
        os.chmod(owner.db, 0o644)
        shutil.copy(owner.program, f'{directory}/postroom')

        class Other(Postroom):
            def __call__(self, *args, **options):
                program, self.program = self.program, 'setpriv'
                try:
                    return super().__call__(f'--reuid={user.pw_uid}', f'--regid={user.pw_gid}', '--clear-groups',
                                            f'{directory}/postroom', *args, **options)
                finally:
                    self.program = program

        other = Other(owner.db, directory)
        found = [one for one in findings(other) if one['check'] == 'writable']
        assert {one['title'] for one in found} == {f'{owner.db} cannot be written', f'{directory} cannot be written'}
        for one in found:
            assert one['level'] == 'problem'
            subprocess.run(one['command'], shell=True, check=True)
        is_quiet(other)
    finally:
        shutil.rmtree(directory)


def U2_long_wal_held_by_a_reader_is_found(migrated, db):
    reader = sqlite3.connect(db, isolation_level=None)
    reader.execute('BEGIN')
    reader.execute('SELECT count(*) FROM postroom_outbox').fetchall()
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('PRAGMA synchronous = OFF')
    for _ in range(20):
        writer.execute("INSERT INTO postroom_outbox (topic, payload, body, status, delivered_at) SELECT 't', 'null', "
                       "zeroblob(4000000), 'delivered', 1000 * CAST(unixepoch() AS INTEGER) * 1000")
    found = [one for one in findings(migrated) if one['check'] == 'wal-size']
    assert found and found[0]['level'] == 'warning' and found[0]['title'].startswith(f'{db}-wal has ')
    reader.close()
    writer.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    writer.close()
    assert [one for one in findings(migrated) if one['check'] == 'wal-size'] == []


def U2_damaged_page_is_found(migrated, sql, db):
    sql("INSERT INTO postroom_outbox (topic, payload, dedupe_key) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n WHERE i < 2000) SELECT 't', '{}', 'key' || i FROM n")
    sql('PRAGMA wal_checkpoint(TRUNCATE)')
    root, size = sql("SELECT rootpage FROM sqlite_schema WHERE name = 'postroom_outbox_dedupe'")[0][0], 4096
    with open(db, 'r+b') as file:
        file.seek((root - 1) * size)
        file.write(bytes(range(1, 256)) * 16)
    found = [one for one in findings(migrated) if one['check'] == 'integrity']
    assert [one['level'] for one in found] == ['problem'], found


def U2_nearly_full_disk_is_found(tmp_path):
    with small_disk(tmp_path / 'small', '8M') as disk:
        postroom = Postroom(disk / 'outbox.db', tmp_path)
        postroom.ok('migrate')
        only(postroom, 'free-space', 'warning')


SHIM = r'''
#include <stdlib.h>
#include <sys/vfs.h>
int statfs64(const char *path, struct statfs64 *out)
{
	int (*real)(const char *, struct statfs64 *) = dlsym(RTLD_NEXT, "statfs64");
	int status = real(path, out);
	out->f_type = strtol(getenv("FAKE_TYPE"), NULL, 16);
	return status;
}
'''


@pytest.mark.parametrize('kind, level', [('6969', 'problem'), ('ff534d42', 'problem'), ('1021997', 'warning'),
                                         ('65735546', 'warning')])
def U2_network_file_system_is_found(migrated, tmp_path, kind, level):
    """The kernel's answer is replaced: no such file system can be mounted in a test."""
    only(migrated, 'file-system', level, env={'LD_PRELOAD': shim(tmp_path, SHIM), 'FAKE_TYPE': kind})


def U2_each_missing_index_and_trigger_is_restored_by_its_advice(migrated, sql, mend):
    objects = sql("SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL "
                  "AND name LIKE 'postroom%' AND tbl_name NOT LIKE '%large'")
    before = sql('SELECT name, sql FROM sqlite_schema ORDER BY name')
    assert len(objects) > 20
    for kind, name in objects:
        sql(f'DROP {kind} {name}')
    found = [one for one in findings(migrated) if one['check'] == 'objects']
    assert [one['level'] for one in found] == ['problem'] * len(objects)
    for one in found:
        mend(one)
    assert sql('SELECT name, sql FROM sqlite_schema ORDER BY name') == before
    is_quiet(migrated)


def U2_changed_index_is_found(migrated, sql, mend):
    sql('DROP INDEX postroom_outbox_dead')
    sql("CREATE INDEX postroom_outbox_dead ON postroom_outbox (id) WHERE status = 'dead'")
    mend(only(migrated, 'objects', 'warning'))
    is_quiet(migrated)


def U2_missing_view_and_table_are_restored_by_their_advice(migrated, sql, mend):
    before = sql("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY name")
    for statement in ('DROP VIEW postroom_messages', 'DROP TABLE postroom_inbox_purged', 'DROP VIEW postroom_inbox_large'):
        sql(statement)
    found = [one for one in findings(migrated) if one['check'] == 'objects']
    assert {one['title'] for one in found} == {
        'View postroom_messages is missing', 'Table postroom_inbox_purged is missing',
        'View postroom_inbox_large is missing', 'Trigger postroom_inbox_large_moved is missing'}
    assert {one['level'] for one in found} == {'problem'}
    for one in found:
        mend(one)
    assert sql("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY name") == before
    is_quiet(migrated)


def U2_altered_table_is_found(migrated, sql):
    sql('ALTER TABLE postroom_attempts ADD COLUMN extra TEXT')
    assert only(migrated, 'objects', 'warning')['title'] == 'Table postroom_attempts differs from its definition'
    sql('ALTER TABLE postroom_attempts DROP COLUMN extra')
    is_quiet(migrated)


def U2_fix_restores_indexes_and_leaves_triggers_alone(migrated, sql):
    before = sql("SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name")
    sql('DROP INDEX postroom_outbox_due')
    sql('DROP INDEX postroom_outbox_dead')
    sql("CREATE INDEX postroom_outbox_dead ON postroom_outbox (id) WHERE status = 'dead'")
    sql('DROP TRIGGER postroom_outbox_headers')
    fixed = migrated('doctor', '--fix')
    assert fixed.code == 1 and fixed.err.count('fixed: ') == 2, fixed
    assert sql("SELECT name, sql FROM sqlite_schema WHERE type = 'index' ORDER BY name") == before
    assert only(migrated, 'objects', 'problem')['title'] == 'Trigger postroom_outbox_headers is missing'


def U2_fix_reports_an_index_that_cannot_be_created(migrated, sql, db):
    sql('DROP INDEX postroom_outbox_due')
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('BEGIN IMMEDIATE')
    failed = migrated('doctor', '--fix')
    assert failed.code == 1 and 'CREATE INDEX postroom_outbox_due' in failed.err and 'fixed: ' not in failed.err, failed
    writer.execute('ROLLBACK')
    writer.close()
    assert migrated.ok('doctor', '--fix').err.count('fixed: ') == 1
    is_quiet(migrated)


def U2_text_fits_into_80_columns_and_commands_stay_whole(migrated, sql):
    sql('DROP INDEX postroom_outbox_due')
    sql('DROP VIEW postroom_messages')
    result = migrated('doctor', '--verbose')
    text = [line for line in result.lines if not line.startswith(' ' * 13)]
    # A path is one word and stays whole.
    assert len(text) > 20 and all(len(line) < 80 or len(line.split()) == 1 for line in text), [
        line for line in text if len(line) >= 80]
    command = [one['command'] for one in findings(migrated) if 'postroom_outbox_due' in one['title']][0]
    assert all(f'{" " * 13}{line}'.rstrip() in [one.rstrip() for one in result.lines] for line in command.split('\n')), result


def U2_expired_lease_without_relay_is_found(migrated, sql):
    migrated.enqueue('orders')
    sql("UPDATE postroom_outbox SET status = 'processing', claims = 1, attempts = 1, state = 'scheduled', locked_by = 'w', locked_until = 1000")
    found = only(migrated, 'expired-leases', 'warning')
    migrated.ok(*found['command'].split()[1:])
    migrated.ok('relay', '--to', 'null:', '--drain')
    is_quiet(migrated)


def U2_undelivered_message_without_relay_is_found(migrated):
    migrated.enqueue('orders')
    is_quiet(migrated)
    wait_until(lambda: findings(migrated, *NOW), 'a millisecond')
    only(migrated, 'delivering', 'warning', *NOW)
    migrated.ok('relay', '--to', 'null:', '--drain')
    is_quiet(migrated, *NOW)


STRANDED = ["UPDATE postroom_outbox SET state = 'held'", "UPDATE postroom_outbox SET next_attempt_at = 253402300799999999",
            "UPDATE postroom_outbox SET status = 'delivered', delivered_at = NULL",
            "UPDATE postroom_outbox SET status = 'processing', locked_by = 'w', locked_until = 253402300799999999",
            "UPDATE postroom_inbox SET state = 'held'",
            "UPDATE postroom_inbox SET status = 'active', locked_by = 'w', locked_until = 253402300799999999"]


@pytest.mark.parametrize('statement', STRANDED)
def U2_stranded_row_is_found(migrated, sql, mend, statement):
    migrated.enqueue('orders')
    migrated.ok('inbox', 'submit', 'handler', 'id', '{}')
    sql(statement)
    mend(only(migrated, 'stranded', 'problem'))
    assert [one for one in findings(migrated) if one['check'] == 'stranded'] == []
    migrated.ok('relay', '--to', 'null:', '--drain')


def U2_old_rows_are_noted_and_purged_by_the_advice(migrated, sql):
    sql("INSERT INTO postroom_outbox (topic, payload, status, delivered_at) VALUES ('t', '{}', 'delivered', 1000)")
    found = only(migrated, 'retention', 'note')
    migrated.ok(*found['command'].split()[1:])
    is_quiet(migrated)


def U2_clock_that_was_set_back_is_found(migrated, sql):
    sql("INSERT INTO postroom_outbox (topic, payload, created_at) VALUES ('t', '{}', ?)", int((time.time() + 7200) * 10**6))
    assert [one['level'] for one in findings(migrated) if one['check'] == 'clock'] == ['warning']


def U2_inspection_writes_nothing(migrated, sql):
    migrated.enqueue('orders')
    before = sql('PRAGMA data_version'), sql('SELECT * FROM postroom_outbox')
    connection = sqlite3.connect(migrated.db)
    version = connection.execute('PRAGMA data_version').fetchone()
    examine(migrated)
    assert connection.execute('PRAGMA data_version').fetchone() == version
    connection.close()
    assert sql('SELECT * FROM postroom_outbox') == before[1]
