# SPDX-License-Identifier: Apache-2.0
"""postroom doctor on SQLite: each condition is produced, found, mended by the advice, and gone."""
import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import Postroom, wait_until
from doctor.examining import examine, findings, is_quiet, only, shim
from doctor.fuse import fuse
from small_disk import DETACH, bind_mount, libc, small_disk

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
    found = {one['check']: one for one in findings(postroom)}
    assert {name: one['level'] for name, one in found.items()} == {'database': 'problem', 'file-names': 'skipped'}
    assert not db.exists()
    postroom.ok(*found['database']['command'].split()[1:])
    is_quiet(postroom)


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


@pytest.mark.parametrize('own', [False, True], ids=['others', 'own'])
def U2_files_without_permission_are_named(own):
    """As an ordinary user, since nothing is closed to root."""
    root = os.geteuid() == 0
    if not own and not root:
        pytest.skip('only root can make files of another user')
    user = pwd.getpwnam('nobody') if root else pwd.getpwuid(os.geteuid())
    directory = tempfile.mkdtemp()
    try:
        os.chmod(directory, 0o755)
        owner = Postroom(f'{directory}/outbox.db', directory)
        owner.ok('migrate')
        os.chmod(owner.db, 0o444 if own else 0o644)
        shutil.copy(owner.program, f'{directory}/postroom')
        if own:
            shutil.chown(owner.db, user.pw_uid, user.pw_gid)
            shutil.chown(directory, user.pw_uid, user.pw_gid)
            os.chmod(directory, 0o555)

        class Other(Postroom):
            def __call__(self, *args, **options):
                program, self.program = self.program, 'setpriv'
                try:
                    return super().__call__(f'--reuid={user.pw_uid}', f'--regid={user.pw_gid}', '--clear-groups',
                                            f'{directory}/postroom', *args, **options)
                finally:
                    self.program = program

        other = (Other if root else Postroom)(owner.db, directory)
        found = [one for one in findings(other) if one['check'] == 'writable']
        assert {one['title'] for one in found} == {f'{owner.db} cannot be written', f'{directory} cannot be written'}
        for one in found:
            assert one['level'] == 'problem' and one['command'].startswith('chmod' if own else 'chown')
            subprocess.run(one['command'], shell=True, check=True)
        is_quiet(other)
    finally:
        os.chmod(directory, 0o755)
        shutil.rmtree(directory)


def fill_log(db):
    """80 MB; the connection."""
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('PRAGMA synchronous = OFF')
    for _ in range(20):
        writer.execute("INSERT INTO postroom_outbox (topic, payload, body, status, delivered_at) SELECT 't', 'null', "
                       "zeroblob(4000000), 'delivered', 1000 * CAST(unixepoch() AS INTEGER) * 1000")
    return writer


READER = """
import sqlite3, sys
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute('BEGIN')
reader.execute('SELECT count(*) FROM postroom_outbox').fetchall()
print('reading', flush=True)
sys.stdin.read()
"""


def U2_reader_that_keeps_the_log_is_named_and_ended_by_the_advice(migrated, db):
    """And no other program that has the file open."""
    with subprocess.Popen([sys.executable, '-c', READER, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout.readline() == b'reading\n'
            writer = fill_log(db)
            link = db.parent / 'link.db'
            link.symlink_to(db)
            assert only(Postroom(link, db.parent), 'wal-size', 'warning')['command'] == f'kill {reader.pid}'
            found = only(migrated, 'wal-size', 'warning')
            assert found['command'] == f'kill {reader.pid}' and f'(process {reader.pid})' in found['detail'], found
            subprocess.run(found['command'], shell=True, check=True)
        finally:
            reader.kill()
    for _ in range(2):
        writer.execute("UPDATE postroom_outbox SET updated_at = updated_at WHERE seq = 1")
    writer.close()
    is_quiet(migrated)


def U2_log_without_checkpoints_is_found_and_emptied_by_the_advice(migrated, db, mend):
    idle = sqlite3.connect(db)
    idle.execute('SELECT count(*) FROM postroom_outbox').fetchall()
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('PRAGMA wal_autocheckpoint = 0')
    writer.execute('PRAGMA synchronous = OFF')
    writer.execute("INSERT INTO postroom_outbox (topic, payload, body, status, delivered_at) SELECT 't', 'null', "
                   "zeroblob(40000000), 'delivered', 1000 * CAST(unixepoch() AS INTEGER) * 1000 FROM (VALUES (1), (2))")
    mend(only(migrated, 'wal-size', 'warning'))
    is_quiet(migrated)
    writer.close()
    idle.close()


def U2_long_log_that_was_written_back_is_quiet(migrated, db):
    writer = fill_log(db)
    writer.execute("INSERT INTO postroom_outbox (topic, payload, body, status, delivered_at) SELECT 't', 'null', "
                   "zeroblob(40000000), 'delivered', 1000 * CAST(unixepoch() AS INTEGER) * 1000 FROM (VALUES (1), (2))")
    assert os.stat(f'{db}-wal').st_size > 66 * 2**20
    is_quiet(migrated)
    writer.close()


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


def U2_fuse_file_system_is_found(tmp_path):
    with fuse(tmp_path / 'fuse') as path:
        found = {one['check']: one for one in findings(Postroom(path / 'outbox.db', tmp_path))}
    assert found['file-system']['level'] == 'warning' and 'FUSE' in found['file-system']['title'], found


def U2_second_name_of_the_file_is_a_problem(migrated, db, tmp_path):
    (tmp_path / 'other').hardlink_to(db)
    found = only(migrated, 'file-names', 'problem')
    assert found['command'] == f"find / -xdev -samefile {db}"
    names = subprocess.run(found['command'].replace('find / ', f'find {tmp_path} '), shell=True, check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    assert sorted(names) == sorted([str(db), f'{tmp_path}/other'])
    (tmp_path / 'other').unlink()
    is_quiet(migrated)


def U2_file_that_is_mounted_alone_is_a_problem(migrated, db, tmp_path):
    """As a container does that mounts only the file."""
    alone = tmp_path / 'alone'
    alone.mkdir()
    (alone / 'outbox.db').touch()
    try:
        bind_mount(db, alone / 'outbox.db')
    except OSError as error:
        pytest.skip(f'a file cannot be mounted here: {error.strerror}')
    try:
        found = {one['check']: one for one in findings(Postroom(alone / 'outbox.db', tmp_path))}
        assert found['file-names']['level'] == 'problem' and 'mounted alone' in found['file-names']['title']
    finally:
        libc.umount2(bytes(alone / 'outbox.db'), DETACH)
    is_quiet(migrated)


def U2_mostly_empty_file_is_noted_and_shrunk_by_the_advice(migrated, sql, mend, db):
    writer = sqlite3.connect(db, isolation_level=None)
    writer.execute('PRAGMA synchronous = OFF')
    for _ in range(27):
        writer.execute("INSERT INTO postroom_outbox (topic, payload, body, status, delivered_at) "
                       "SELECT 't', 'null', zeroblob(4000000), 'delivered', 1000 * CAST(unixepoch() AS INTEGER) * 1000")
    writer.execute('DELETE FROM postroom_outbox')
    writer.execute('DELETE FROM postroom_content')
    writer.execute('PRAGMA wal_checkpoint(TRUNCATE)')
    writer.close()
    mend(only(migrated, 'free-pages', 'note'))
    is_quiet(migrated)


OLD_LIBRARY = r'''
int sqlite3_libversion_number(void) { return 3030000; }
const char *sqlite3_libversion(void) { return "3.30.0"; }
'''


def U2_old_library_is_noted(migrated, tmp_path):
    """The answer of the library is replaced."""
    found = only(migrated, 'library', 'note', env={'LD_PRELOAD': shim(tmp_path, OLD_LIBRARY)})
    assert '3.30.0' in found['title']
    is_quiet(migrated)


WEAK_LIBRARY = r'''
#include <string.h>
int sqlite3_exec(void *db, const char *sql, void *fn, void *context, void *error)
{
	int (*real)(void *, const char *, void *, void *, void *) = dlsym(RTLD_NEXT, "sqlite3_exec");
	if (strstr(sql, "synchronous = FULL"))
		sql = "PRAGMA schema_version; PRAGMA synchronous = NORMAL";
	return real(db, sql, fn, context, error);
}
'''


def U2_weak_synchronous_setting_is_found_and_invisible_settings_are_named(migrated, tmp_path):
    """The library ignores the setting of the program."""
    only(migrated, 'synchronous', 'warning', env={'LD_PRELOAD': shim(tmp_path, WEAK_LIBRARY)})
    is_quiet(migrated)
    found, = [one for one in examine(migrated) if one['check'] == 'synchronous']
    assert found['level'] == 'ok' and 'busy_timeout' in found['detail'] and 'cannot be seen' in found['detail']
    assert 'busy_timeout' in migrated.ok('doctor', '--verbose').out


def U2_size_and_age_are_listed(migrated):
    migrated.enqueue('orders')
    sizes, = [one for one in examine(migrated) if one['check'] == 'sizes']
    assert sizes['level'] == 'ok' and 'outbox: oldest row from 20' in sizes['detail'] and 'inbox: no rows' in sizes['detail'], sizes


def U2_event_without_consumer_is_found(migrated):
    migrated.ok('inbox', 'submit', "bill", 'id', '{}')
    is_quiet(migrated)
    wait_until(lambda: findings(migrated, *NOW), 'a millisecond')
    found = only(migrated, 'handling', 'warning', *NOW)
    assert '"bill"' in found['title']
    rows = subprocess.run(found['command'].replace('postroom', migrated.program, 1), shell=True, check=True, cwd=migrated.cwd,
                          env=migrated.environment(), stdout=subprocess.PIPE, text=True).stdout
    assert 'bill' in rows
    migrated.ok('consume', '--handler', 'bill', '--exec', 'true', '--drain')
    is_quiet(migrated, *NOW)


def U2_old_dedupe_keys_are_noted_and_purged_by_a_relay(migrated, sql):
    sql("INSERT INTO postroom_dedupe VALUES ('default', 't', 'gone', 'x', ?)", int((time.time() - 60 * 86400) * 10**6))
    assert 'dedupe keys' in only(migrated, 'retention', 'note')['title']
    relay = migrated.start('relay', '--to', 'null:')
    wait_until(lambda: not findings(migrated), 'the relay to purge')
    relay.terminate()
    relay.communicate()
    assert sql('SELECT * FROM postroom_dedupe') == []


def U2_old_dead_letters_are_noted(migrated, sql):
    then = int((time.time() - 40 * 86400) * 10**6)
    migrated.enqueue('orders')
    migrated.ok('inbox', 'submit', 'handler', 'id', '{}')
    migrated.ok('relay', '--to', 'exec:exit 65', '--drain')
    migrated('consume', '--handler', 'handler', '--exec', 'exit 65', '--drain')
    is_quiet(migrated)
    sql('UPDATE postroom_outbox SET created_at = ?, next_attempt_at = ?', then, then)
    sql('UPDATE postroom_inbox SET created_at = ?, next_attempt_at = ?', then, then)
    found = findings(migrated)
    assert [(one['check'], one['level']) for one in found] == [('retention', 'note')] * 2, found
    for one in found:
        assert 'dead' in migrated.ok(*one['command'].split()[1:]).out
    migrated.ok('purge', '--status', 'dead', '--yes')
    migrated.ok('inbox', 'purge', '--status', 'dead', '--yes')
    is_quiet(migrated)


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
            "UPDATE postroom_outbox SET status = 'delivered', delivered_at = 253402300799999999",
            "UPDATE postroom_inbox SET status = 'completed', processed_at = 1, updated_at = 253402300799999999",
            "UPDATE postroom_inbox SET state = 'held'", "UPDATE postroom_inbox SET state = 'scheduled', next_attempt_at = 253402300799999999",
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
