# SPDX-License-Identifier: Apache-2.0
"""Programs of two versions on one database (U1), on both databases.

The newer ones are the same program with further migrations (tests/upgrade): 0.2.0 adds columns and
an index, after which older programs keep working; the migration of 0.3.0 excludes them.
"""
import json
import pathlib
import sqlite3
import subprocess
import threading

import pytest

from conftest import PATIENCE, PROGRAM, Postroom, wait_until

BUILD = pathlib.Path(PROGRAM).resolve().parent
WORKER = '0f5a3c1e-7b2d-4e9a-8c11-2233445566aa'


# The migrations of this program, on each database.
PRESENT = {'sqlite': ['001_outbox'], 'pgsql': ['001_outbox', '002_workers', '003_inbox_workers']}


class Versions:
    """Programs of all versions on one database, and plain SQL on it."""

    def __init__(self, kind, db, cwd, sql):
        self.present = PRESENT[kind]
        self.later = f'{len(self.present) + 1:03}_later'
        self.last = f'{len(self.present) + 2:03}_exclusive'
        self.old = Postroom(db, cwd)
        self.newer = Postroom(db, cwd, BUILD / 'tests' / 'postroom-0.2.0')
        self.exclusive = Postroom(db, cwd, BUILD / 'tests' / 'postroom-0.3.0')
        self.sql, self.cwd = sql, pathlib.Path(cwd)

    def insert(self, payload):
        """What an application of any language does."""
        self.sql(f"INSERT INTO postroom_outbox (topic, payload) VALUES ('plain', '{payload}')")

    def ledger(self):
        return [f'{version:03}_{name}' for version, name in
                self.sql('SELECT version, name FROM postroom_migrations ORDER BY version')]

    def delivered(self):
        path = self.cwd / 'out'
        lines = path.read_text().splitlines() if path.exists() else []
        return sorted(json.loads(line)['payload'] for line in lines)

    def start(self, program, log, *args, **options):
        with open(self.cwd / log, 'wb') as file:
            return program.start(*args, stdout=file, stderr=file, **options)

    def log(self, name):
        return (self.cwd / name).read_text(errors='replace')

    def end(self):
        for program in (self.old, self.newer, self.exclusive):
            program.end()


def run_on_sqlite(path):
    def run(statement):
        connection = sqlite3.connect(path, timeout=PATIENCE)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()
    return run


def make_versions(request, tmp_path, kind):
    if kind == 'sqlite':
        path = tmp_path / 'outbox.db'
        return Versions(kind, path, tmp_path, run_on_sqlite(path))
    return Versions(kind, request.getfixturevalue('db'), tmp_path, request.getfixturevalue('sql'))


@pytest.fixture(params=['sqlite', 'pgsql'])
def unmigrated_versions(request, tmp_path):
    versions = make_versions(request, tmp_path, request.param)
    yield versions
    versions.end()


@pytest.fixture
def versions(unmigrated_versions):
    unmigrated_versions.old.ok('migrate')
    return unmigrated_versions


@pytest.fixture(params=['sqlite', 'pgsql row', 'pgsql lane'])
def leased_versions(request, tmp_path):
    kind, _, lease = request.param.partition(' ')
    versions = make_versions(request, tmp_path, kind)
    versions.old.ok('migrate')
    if lease:
        versions.old.ok('lease', lease)
    yield versions
    versions.end()


class Producer:
    """An old program that stays connected and writes a message for each line it is sent."""

    def __init__(self, versions):
        self.process = versions.start(versions.old, 'producer.log', 'enqueue', '--ndjson', '-', '--batch-size', '1',
                                      stdin=subprocess.PIPE)
        self.sent = []

    def send(self, n):
        self.sent.append(n)
        self.process.stdin.write(json.dumps({'topic': 'orders', 'key': f'k{n % 3}', 'payload': n}).encode() + b'\n')
        self.process.stdin.flush()

    def finish(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def start_handler(versions):
    """A consumer whose job stops between two steps, until the test opens the gate."""
    gate = versions.cwd / 'gate'
    command = (f'{PROGRAM} step one -- echo 1 && until test -e {gate}; do sleep 0.01; done && '
               f'{PROGRAM} step two -- echo 2 && {PROGRAM} checkpoint "{{}}"')
    versions.old.ok('inbox', 'submit', 'import', 'job-1', '{"n": 1}')
    consumer = versions.start(versions.old, 'consumer.log', 'consume', '--handler', 'import', '--exec', command)
    wait_until(lambda: 'one' in job(versions)['steps'], 'the first step')
    return consumer, gate


def job(versions):
    return versions.old.ok('inbox', 'list', '--json').object


def U1_old_programs_keep_working_during_and_after_a_newer_migrate(leased_versions):
    versions = leased_versions
    relay = versions.start(versions.old, 'relay.log', 'relay', '--to', 'file:out', '--workers', '2')
    consumer, gate = start_handler(versions)
    producer = Producer(versions)
    for n in range(20):
        producer.send(n)
    wait_until(lambda: len(versions.delivered()) == 20, 'messages before the migration')

    migrated = threading.Event()

    def produce():
        while not migrated.is_set():
            producer.send(len(producer.sent))
    thread = threading.Thread(target=produce)
    thread.start()
    try:
        out = versions.newer.ok('migrate').out
    finally:
        migrated.set()
        thread.join()
    assert out == f'applied {versions.later}\n' and versions.ledger() == [*versions.present, versions.later]

    # The ones that run: producers, the relay, the handler and its next step.
    for n in range(20):
        producer.send(len(producer.sent))
    versions.insert(1000000)
    gate.touch()
    wait_until(lambda: job(versions)['status'] == 'completed', 'the job')
    assert sorted(job(versions)['steps']) == ['one', 'two'] and job(versions)['attempts'] == 1
    # Programs that start now.
    versions.old.enqueue('orders', '1000001')
    newer_relay = versions.start(versions.newer, 'newer.log', 'relay', '--to', 'file:out')
    versions.newer.enqueue('orders', '1000002')
    producer.finish()
    expected = sorted([*producer.sent, 1000000, 1000001, 1000002])
    wait_until(lambda: len(versions.delivered()) >= len(expected), 'all messages')
    versions.old.ok('relay', '--drain', '--to', 'file:out')
    assert versions.delivered() == expected
    assert versions.old.stats()['backlog'] == 0
    for process, log in ((relay, 'relay.log'), (consumer, 'consumer.log'), (newer_relay, 'newer.log')):
        process.terminate()
        assert process.wait() == 0, versions.log(log)
        # The migration gives way in a deadlock unless the machine is very busy; then a claim is repeated.
        lines = [line for line in versions.log(log).splitlines() if 'deadlock detected' not in line]
        assert not [line for line in lines if 'TROUBLE' in line or 'FAIL' in line]


def U1_old_migrate_leaves_a_newer_compatible_schema_alone(versions):
    versions.newer.ok('migrate')
    before = versions.sql('SELECT * FROM postroom_migrations')

    out = versions.old.ok('migrate').out
    assert 'the schema is newer' in out and 'postroom 0.2.0' in out and 'nothing was changed' in out
    assert versions.old.ok('migrate', '--json').out == ''
    assert versions.old.ok('migrate', '--dry-run').out == ''
    lines = versions.old.ok('migrate', '--status').lines
    assert len(lines) == len(versions.present) + 1 and lines[-1].startswith(f'{versions.later}  applied ') and \
        lines[-1].endswith(' by 0.2.0, newer than this program')
    rows = versions.old.ok('migrate', '--status', '--json').objects
    assert [(row['version'], row['compatible_with'], row['applied_by']) for row in rows] == \
        [*((n + 1, 1, versions.old.ok('--version').out.split()[-1]) for n in range(len(versions.present))),
         (len(versions.present) + 1, 1, '0.2.0')]
    assert versions.sql('SELECT * FROM postroom_migrations') == before


def U1_two_versions_that_migrate_concurrently_apply_each_migration_once(unmigrated_versions):
    versions = unmigrated_versions
    programs = [versions.old, versions.newer, versions.old, versions.newer]
    processes = [program.start('migrate') for program in programs]
    for process in processes:
        assert process.wait() == 0, process.stderr.read()
    assert versions.ledger() == [*versions.present, versions.later]


def U1_excluded_program_refuses_and_names_the_version_to_install(versions):
    versions.old.enqueue('orders', '1')
    versions.old.ok('inbox', 'submit', 'import', 'job-1')
    versions.exclusive.ok('migrate')

    environment = {'POSTROOM_HANDLER': 'import', 'POSTROOM_ID': 'job-1', 'POSTROOM_CLAIM': '1'}
    for program in (versions.old, versions.newer):
        for args in (['enqueue', 'orders', '2'], ['relay', '--to', 'null:'], ['stats'], ['migrate'],
                     ['migrate', '--dry-run'], ['inbox', 'submit', 'import', 'job-2'],
                     ['consume', '--handler', 'import', '--exec', 'true'], ['step', 'one', '--', 'true']):
            error = program.fails(1, *args, env=environment if args[0] == 'step' else None)
            assert 'install postroom 0.3.0 or newer' in error and f'schema version {len(versions.present) + 2}' in error, error
    assert [line.split()[0] for line in versions.old.ok('migrate', '--status').lines] == \
        [*versions.present, versions.later, versions.last]
    assert [(row['topic'], row['status']) for row in versions.exclusive.rows()] == [('orders', 'pending')]
    assert versions.exclusive.ok('relay', '--drain', '--to', 'file:out').code == 0
    assert versions.delivered() == [1]


def ended_as_incompatible(versions, process, log, event):
    wait_until(lambda: process.poll() is not None, f'{log} to end')
    text = versions.log(log)
    assert process.returncode == 1, text
    assert text.count(event) == 1 and 'install postroom 0.3.0 or newer' in text.splitlines()[-1], text
    return True


def U1_running_programs_stop_when_a_migration_excludes_them(leased_versions):
    """Idle ones: no statement of theirs would fail."""
    versions = leased_versions
    relay = versions.start(versions.old, 'relay.log', 'relay', '--to', 'file:out')
    consumer = versions.start(versions.old, 'consumer.log', 'consume', '--handler', 'import', '--exec', 'true')
    versions.old.enqueue('orders', '1')
    versions.old.ok('inbox', 'submit', 'import', 'job-1')
    wait_until(lambda: versions.delivered() == [1], 'the first message')
    wait_until(lambda: 'DISPATCH_SUCCESS' in versions.log('consumer.log'), 'the first job')

    versions.exclusive.ok('migrate')
    assert ended_as_incompatible(versions, relay, 'relay.log', 'OUTBOX_SCHEMA_INCOMPATIBLE')
    assert ended_as_incompatible(versions, consumer, 'consumer.log', 'INBOX_SCHEMA_INCOMPATIBLE')
    # Applications that use the documented columns go on; the new version delivers.
    versions.insert(2)
    versions.exclusive.ok('relay', '--drain', '--to', 'file:out')
    assert versions.delivered() == [1, 2]


def U1_busy_relay_stops_when_its_statements_fail_after_an_exclusive_migration(leased_versions):
    """A migration may also change what old statements use. Nothing is left claimed or lost."""
    versions = leased_versions
    relay = versions.start(versions.old, 'relay.log', 'relay', '--to', 'file:out', '--batch-size', '2',
                           '--lease', '3s')
    producer = Producer(versions)
    for n in range(20):
        producer.send(n)
    producer.finish()
    versions.exclusive.ok('migrate')
    versions.sql('ALTER TABLE postroom_outbox RENAME COLUMN next_attempt_at TO due_at')
    assert ended_as_incompatible(versions, relay, 'relay.log', 'OUTBOX_SCHEMA_INCOMPATIBLE')
    versions.sql('ALTER TABLE postroom_outbox RENAME COLUMN due_at TO next_attempt_at')
    versions.exclusive.ok('relay', '--drain', '--to', 'file:out')
    assert sorted(set(versions.delivered())) == producer.sent
