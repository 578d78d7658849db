# SPDX-License-Identifier: Apache-2.0
"""The roles of docs/postgres-roles.sql: each may do its work, and nothing else."""
import json
import re
import shutil
import subprocess
import uuid

import psycopg2
import pytest

from conftest import ROOT, Postroom, wait_until
from sink_files import messages_in
from pgsql.server import binaries

PSQL = shutil.which('psql') or f'{binaries()}/psql'
GRANTS = ROOT / 'docs' / 'postgres-roles.sql'
SCHEMA = 'Mail'


class Role(Postroom):
    """The program, run by that role; and its SQL."""

    def __init__(self, place, database, name, tmp_path):
        super().__init__(place.url(database, user=name), tmp_path)
        self.place, self.database, self.name = place, database, name

    def __call__(self, *args, **options):
        return super().__call__('--schema', SCHEMA, *args, **options)

    def sql(self, statement, *parameters):
        return self.place.sql(self.database, statement, *parameters, user=self.name,
                              options=f'-c search_path="{SCHEMA}"')

    def may_not(self, *statements):
        for statement in statements:
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                self.sql(statement)

    def refused(self, *commands):
        for command in commands:
            result = self(*command)
            assert result.code == 1 and len(result.err.splitlines()) == 1, result
            assert re.search('permission denied for (table postroom_(outbox|inbox)|view postroom_messages)', result.err), result


@pytest.fixture
def roles(unmigrated, place, database, sql, tmp_path):
    """The roles as the file makes them; all databases share them, hence the names."""
    unmigrated.ok('migrate', '--schema', SCHEMA)
    names = {kind: f'{kind} {uuid.uuid4().hex[:8]}' for kind in ('producer', 'consumer', 'worker', 'sql_worker', 'relay', 'reader')}
    for name in names.values():
        sql(f'CREATE ROLE "{name}" LOGIN')
    variables = [word for kind, name in [('schema', SCHEMA), *names.items()]
                 for word in ('-v', f'{kind}={name}')]
    for _ in range(2):  # again is harmless
        subprocess.run([PSQL, '-q', *variables, '-f', GRANTS, place.url(database)], check=True)
    yield {kind: Role(place, database, name, tmp_path) for kind, name in names.items()}
    for name in names.values():
        sql(f'DROP OWNED BY "{name}"')
        sql(f'DROP ROLE "{name}"')


NOT_ITS_BUSINESS = ['CREATE TABLE mine (n int)', 'TRUNCATE postroom_outbox', 'DROP TABLE postroom_outbox',
                    'ALTER TABLE postroom_outbox ADD mine int', 'DELETE FROM postroom_migrations',
                    "SELECT setval('postroom_outbox_seq_seq', 1)"]


def E6_producer_role_enqueues_by_every_entry_point_and_reads_no_payload(roles, sql, tmp_path):
    producer = roles['producer']
    first = producer.enqueue('t', '{"n": 1}', '--dedupe-key', 'd')
    assert producer.ok('enqueue', 't', '{"n": 2}', '--dedupe-key', 'd', '--json').object == {
        'id': first, 'dedupe_key': 'd', 'duplicate': True}
    producer.sql("INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    assert producer.sql("SELECT duplicate FROM postroom_enqueue('t', '2', dedupe_key => 'd', "
                        "key => 'k', delay => '1s')") == [(True,)]
    assert producer.sql("INSERT INTO postroom_outbox (topic, payload, dedupe_key) VALUES "
                        "('t', '1', 'd'), ('t', '1', 'e') ON CONFLICT DO NOTHING RETURNING topic") == [
        ('t',)]
    (tmp_path / 'many').write_text('{"topic":"t","payload":1}\n{"topic":"t","payload":1,'
                                   '"dedupe_key":"d"}\n' * 2)
    producer.ok('enqueue', '--ndjson', tmp_path / 'many')
    assert sql(f'SELECT count(*) FROM "{SCHEMA}".postroom_outbox') == [(5,)]
    # It may see the columns that identify duplicates.
    assert producer.sql('SELECT count(dedupe_key) FROM postroom_outbox') == [(2,)]
    producer.may_not(*NOT_ITS_BUSINESS, 'SELECT payload FROM postroom_outbox',
                     'SELECT body, headers FROM postroom_outbox', 'SELECT * FROM postroom_outbox',
                     'DELETE FROM postroom_outbox', "UPDATE postroom_outbox SET topic = 'x'",
                     "UPDATE postroom_outbox SET payload = '1'",
                     "INSERT INTO postroom_outbox (topic, payload, status) VALUES ('t', '1', 'dead')",
                     *(f"INSERT INTO postroom_outbox (topic, payload, {column}) VALUES ('t', '1', NULL)"
                       for column in ('state', 'attempts', 'claims', 'locked_by', 'locked_until', 'last_attempt_at',
                                      'last_error', 'delivered_at')),
                     'DELETE FROM postroom_dedupe', 'SELECT * FROM postroom_dedupe',
                     'SELECT created_at FROM postroom_dedupe', "UPDATE postroom_dedupe SET dedupe_key = 'x'",
                     'UPDATE postroom_dedupe SET created_at = now()',
                     "INSERT INTO postroom_dedupe (namespace, topic, dedupe_key, id, created_at) "
                     "VALUES ('default', 't', 'x', gen_random_uuid(), now())",
                     "SELECT setval('postroom_notify_until', 1)")
    producer.refused(['stats'], ['list'], ['show', first], ['retry', '--dead'],
                     ['purge', '--status', 'dead', '--yes'])


def E3_producer_cannot_change_the_memory_of_written_messages(roles):
    producer = roles['producer']
    first = producer.enqueue('t', '1', '--dedupe-key', 'd')
    for change in ('written = false', 'id = gen_random_uuid()'):
        with pytest.raises(psycopg2.errors.CheckViolation):
            producer.sql(f'UPDATE postroom_dedupe SET {change}')
    # A key that is only reserved keeps no message back.
    producer.sql("INSERT INTO postroom_dedupe (namespace, topic, dedupe_key, id) "
                 "VALUES ('default', 't', 'reserved', gen_random_uuid())")
    assert producer.ok('enqueue', 't', '1', '--dedupe-key', 'reserved', '--json').object['duplicate'] is False
    assert producer.ok('enqueue', 't', '1', '--dedupe-key', 'd', '--json').object['id'] == first


def N2_consumer_role_accepts_by_every_entry_point_and_reads_no_payload(roles, sql):
    consumer = roles['consumer']
    assert consumer.sql("SELECT postroom_inbox_once('e', 'h'), postroom_inbox_once('e', 'h')") == [(True, False)]
    assert consumer.ok('inbox', 'submit', 'h', 'e', '--json').object == {
        'id': 'e', 'handler': 'h', 'status': 'completed', 'duplicate': True}
    assert consumer.ok('inbox', 'submit', 'h', 'c', '{"n": 1}', '--json').object['duplicate'] is False
    assert consumer.sql("SELECT * FROM postroom_inbox_submit('h', 'c', '{}')") == [('pending', True)]
    consumer.sql("INSERT INTO postroom_inbox (id, handler_name, status) VALUES ('e', 'h', 'completed') "
                 "ON CONFLICT DO NOTHING RETURNING id")
    assert sql(f'SELECT count(*) FROM "{SCHEMA}".postroom_inbox') == [(2,)]
    consumer.may_not(*NOT_ITS_BUSINESS, 'SELECT payload FROM postroom_inbox', 'DELETE FROM postroom_inbox',
                     "UPDATE postroom_inbox SET status = 'dead'", 'TRUNCATE postroom_inbox',
                     "INSERT INTO postroom_inbox (id, handler_name, attempts) VALUES ('a', 'h', 9)",
                     'SELECT id FROM postroom_outbox',
                     "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    consumer.refused(['inbox', 'list'], ['inbox', 'show', 'c'], ['inbox', 'retry', '--dead'],
                     ['inbox', 'purge', '--status', 'dead', '--yes'], ['stats'])
    for role in ('producer', 'relay', 'reader'):
        line = roles[role].fails(1, 'inbox', 'submit', 'h', 'new')
        assert 'inbox submit: ' in line and 'the role needs INSERT' in line


def N2_worker_role_consumes_and_changes_no_event(roles, sql):
    worker = roles['worker']
    sql(f'CREATE TABLE "{SCHEMA}".ledger (n int CHECK (n <> 13), id text)')
    sql(f'GRANT INSERT ON "{SCHEMA}".ledger TO "{worker.name}"')
    lines = ''.join(json.dumps({'id': f'e{n}', 'topic': 't', 'key': f'k{n % 2}', 'payload': {'n': n}}) + '\n'
                    for n in (1, 2, 13, 3))
    quick = ['--max-attempts', '2', '--base-delay', '10ms']
    worker.ok('consume', '--handler', 'h', '--from', '-', '--ordered', *quick, '--sql',
              f"""INSERT INTO "{SCHEMA}".ledger SELECT ($1 ->> 'n')::int, $2""", input=lines)
    assert sql(f'SELECT n FROM "{SCHEMA}".ledger ORDER BY n') == [(1,), (2,), (3,)]
    assert sql(f'SELECT id, last_error FROM "{SCHEMA}".postroom_inbox WHERE status = %s', 'dead') == [
        ('e13', 'the handler\'s statement failed: new row for relation "ledger" violates check constraint '
                '"ledger_n_check"')]
    roles['consumer'].sql("SELECT postroom_inbox_submit('g', 'c', '1')")
    worker.ok('consume', '--handler', 'g', '--from', '-', *quick, '--exec', 'cat', input=lines)
    counts = roles['reader'].stats()['inbox']
    assert (counts['pending'], counts['completed'], counts['dead']) == (0, 8, 1)
    worker.may_not(*NOT_ITS_BUSINESS, "UPDATE postroom_inbox SET payload = '1'", "UPDATE postroom_inbox SET id = 'x'",
                   'TRUNCATE postroom_inbox', 'SELECT id FROM postroom_outbox')


@pytest.mark.parametrize('lease', ['row', 'lane'])
def S1_sql_worker_role_claims_and_settles_and_inserts_no_message(roles, unmigrated, sql, lease):
    worker, id = roles['sql_worker'], str(uuid.uuid4())
    unmigrated.ok('lease', lease, '--schema', SCHEMA)
    for n in range(3):
        roles['producer'].enqueue('t', str(n), '--key', 'k')
        roles['producer'].enqueue('t', str(n))
    roles['producer'].enqueue('t', '1', '--key', 'later', '--delay', '1ms')

    def settle(function, rows):
        return worker.sql(f'SELECT postroom_{function}(%s, %s::uuid[], %s)', id, [row[0] for row in rows],
                          [row[1] for row in rows])[0][0]

    def claim(arguments=''):
        return worker.sql(f'SELECT id, claims, payload, body, headers FROM postroom_claim(%s{arguments})', id)
    rows = claim(', 4')
    assert len(rows) == 4 and settle('renew', rows) == 4 and settle('release', rows[:1]) == 1
    assert worker.sql("SELECT postroom_nack(%s, %s, %s, 'no', retry_in => '0')", id, *rows[1][:2]) == [(True,)]
    settle('ack', rows[2:])
    # Lost leases of rows and of lanes.
    sql(f'''UPDATE "{SCHEMA}".postroom_outbox SET locked_until = locked_until - interval '1 day' WHERE status = 'processing' ''')
    lost = sql(f'''UPDATE "{SCHEMA}".postroom_lanes AS l SET locked_by = gen_random_uuid(), locked_until = now() - interval '1 day',
                   in_flight = ARRAY[o.seq] FROM "{SCHEMA}".postroom_outbox AS o WHERE o.state = 'ready' AND o.status = 'pending'
                   AND l.lane = (CASE WHEN o.key IS NULL THEN o.seq ELSE hashtext(o.key) END & 63) + 1 RETURNING l.lane''')
    assert lost

    def drain():
        while rows := claim():
            assert settle('ack', rows) == len(rows)
        worker.sql('SELECT postroom_worker_sweep()')
        return sql(f'''SELECT count(*) FROM "{SCHEMA}".postroom_messages WHERE status <> 'delivered' ''') == [(0,)]
    wait_until(drain, 'all to be delivered')
    worker.may_not(*NOT_ITS_BUSINESS, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')",
                   "UPDATE postroom_outbox SET payload = '1'", "UPDATE postroom_outbox SET topic = 'x'",
                   "UPDATE postroom_lanes SET lease = 'row'", 'UPDATE postroom_lanes SET low_water_seq = 0',
                   'SELECT * FROM postroom_history', 'DELETE FROM postroom_history', 'SELECT * FROM postroom_inbox',
                   f"SELECT postroom_inbox_claim('{id}', 'h')")


def S1_worker_role_runs_jobs_by_functions_alone(roles, sql):
    worker, id = roles['worker'], str(uuid.uuid4())
    for n in range(3):
        roles['consumer'].sql(f"SELECT postroom_inbox_submit('h', 'c{n}', '1')")
    assert worker.sql(f"SELECT id, claims FROM postroom_inbox_claim('{id}', 'h')") == [('c0', 1), ('c1', 1), ('c2', 1)]
    for function, result in (('renew', 1), ('release', 1), ('ack', 0)):
        assert worker.sql(f"SELECT postroom_inbox_{function}('{id}', 'h', '{{c0}}', '{{1}}')") == [(result,)]
    assert worker.sql(f"SELECT postroom_inbox_nack('{id}', 'h', 'c1', 1, 'no')") == [(True,)]
    assert worker.sql(f"SELECT postroom_inbox_ack('{id}', 'h', '{{c2}}', '{{1}}')") == [(1,)]
    sql(f'''UPDATE "{SCHEMA}".postroom_inbox SET state = 'held', key = 'k', topic = 't' WHERE id = 'c0' ''')
    worker.sql('SELECT postroom_worker_sweep_jobs()')
    assert worker.sql(f"SELECT id, claims FROM postroom_inbox_claim('{id}', 'h')") == [('c0', 2)]


def S1_functions_for_workers_are_refused_without_execute(roles):
    id = uuid.uuid4()
    calls = [f"SELECT postroom_claim('{id}')", f"SELECT postroom_ack('{id}', '{{}}', '{{}}')",
             f"SELECT postroom_nack('{id}', '{id}', 1)", f"SELECT postroom_release('{id}', '{{}}', '{{}}')",
             f"SELECT postroom_renew('{id}', '{{}}', '{{}}')", 'SELECT postroom_worker_sweep()']
    jobs = [f"SELECT postroom_inbox_claim('{id}', 'h')", f"SELECT postroom_inbox_ack('{id}', 'h', '{{}}', '{{}}')",
            f"SELECT postroom_inbox_nack('{id}', 'h', 'x', 1)", f"SELECT postroom_inbox_release('{id}', 'h', '{{}}', '{{}}')",
            f"SELECT postroom_inbox_renew('{id}', 'h', '{{}}', '{{}}')", 'SELECT postroom_worker_sweep_jobs()']
    for name in ('producer', 'consumer', 'relay', 'reader'):
        roles[name].may_not(*calls, *jobs)
    roles['worker'].may_not(*calls)
    roles['sql_worker'].may_not(*jobs)


def S1_every_function_of_workers_is_granted_and_none_to_all(roles, sql):
    granted = sql('''SELECT p.proname, p.prosecdef, has_function_privilege('public', p.oid, 'EXECUTE'),
                            has_function_privilege(%s, p.oid, 'EXECUTE') OR has_function_privilege(%s, p.oid, 'EXECUTE')
                     FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
                     WHERE n.nspname = %s AND p.proname ~ '_(worker_.*|claim|ack|nack|release|renew)$' ''',
                  roles['worker'].name, roles['sql_worker'].name, SCHEMA)
    assert len(granted) > 30
    assert [row for row in granted if row[1:] != (False, False, True)] == []


def S1_grants_in_the_guide_are_those_of_the_file():
    block = re.search(r'^```sql\n(GRANT.*?)^```', (ROOT / 'docs' / 'workers.md').read_text(), re.MULTILINE | re.DOTALL)[1]
    words = lambda text: ' '.join(text.split())
    for grant in block.split(';')[:-1]:
        assert words(grant.replace(' TO mailer', ' TO :"sql_worker"')) in words(GRANTS.read_text()), grant


def N4_relay_role_maintains_the_inbox(roles, sql):
    relay = roles['relay']
    roles['consumer'].sql("SELECT postroom_inbox_once('e', 'h'), postroom_inbox_submit('h', 'c')")
    sql(f'''UPDATE "{SCHEMA}".postroom_inbox SET status = 'dead' WHERE id = 'c' ''')
    relay.ok('inbox', 'retry', 'h', 'c')
    assert relay.stats()['inbox']['pending'] == 1
    running = relay.start('--schema', SCHEMA, 'relay', '--to', 'null:', '--inbox-retention', '1ms',
                          stderr=subprocess.DEVNULL)
    wait_until(lambda: relay.stats()['inbox']['completed'] == 0, 'the old one to go')
    running.terminate()
    assert running.wait() == 0
    relay.may_not("UPDATE postroom_inbox SET payload = '1'", "UPDATE postroom_inbox SET id = 'x'",
                  'TRUNCATE postroom_inbox')


def D2_relay_role_can_relay_and_inserts_no_message(roles, sql, tmp_path):
    relay = roles['relay']
    for n in range(5):
        roles['producer'].enqueue('t', str(n))
    relay.ok('relay', '--drain', '--to', 'file:out', '--retention', '1ms')
    assert len(messages_in(tmp_path / 'out')) == 5
    bad = roles['producer'].enqueue('bad', '{}')
    relay.ok('relay', '--drain', '--to', 'exec:exit 1', '--max-attempts', '2', '--base-delay', '1ms')
    assert relay.show(bad)['status'] == 'dead'
    relay.ok('retry', bad)
    relay.ok('relay', '--drain', '--to', 'exec:exit 65')
    relay.ok('retry', '--dead')
    relay.ok('relay', '--drain', '--to', 'null:')
    assert relay.stats()['delivered'] == 6
    relay.ok('purge', '--status', 'delivered', '--yes')
    assert sql(f'SELECT count(*) FROM "{SCHEMA}".postroom_outbox') == [(0,)]
    relay.may_not(*NOT_ITS_BUSINESS, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')",
                  "UPDATE postroom_outbox SET payload = '1'", "UPDATE postroom_outbox SET topic = 'x'")
    assert 'the role needs INSERT' in relay.fails(1, 'enqueue', 't', '1')


def D3_sleeping_relay_role_is_woken_by_producer_role(roles, tmp_path):
    """The whole path of a notification: deadline, notify, receive."""
    running = roles['relay'].start('--schema', SCHEMA, 'relay', '--to', 'file:out', '--poll-interval',
                                   '8h', '--lease', '24h', '--workers', '1')
    try:
        wait_until(lambda: roles['relay'].sql(
            'SELECT last_value > extract(epoch FROM clock_timestamp()) * 1000 + 500 '
            'FROM postroom_notify_until') == [(True,)], 'the relay to sleep')
        roles['producer'].sql("SELECT postroom_enqueue('t', '1')")
        wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')
    finally:
        running.kill()
        roles['relay'].end()


def X1_reader_role_reads_and_changes_nothing(roles):
    reader = roles['reader']
    id = roles['producer'].enqueue('t', '{"n": 1}')
    assert reader.stats()['pending'] == 1
    assert [row['id'] for row in reader.rows()] == [id]
    assert reader.show(id)['payload'] == {'n': 1}
    roles['consumer'].sql("SELECT postroom_inbox_submit('h', 'c', '1')")
    assert reader.ok('inbox', 'show', 'c', '--json').object['payload'] == 1
    reader.may_not(*NOT_ITS_BUSINESS, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')",
                   "UPDATE postroom_outbox SET status = 'dead'", 'DELETE FROM postroom_outbox',
                   "SELECT nextval('postroom_outbox_seq_seq')", "SELECT setval('postroom_notify_until', 1)",
                   'SELECT * FROM postroom_outbox FOR UPDATE', 'DELETE FROM postroom_inbox',
                   "UPDATE postroom_inbox SET status = 'dead'")
    reader.refused(['enqueue', 't', '1'], ['retry', '--dead'], ['retry', id],
                   ['purge', '--status', 'dead', '--yes'])


def E1_a_missing_privilege_is_named(roles, database, sql):
    """One taken away at a time; the line says which one is wanted and where."""
    producer = roles['producer']
    version, = sql("SELECT current_setting('server_version_num')::int")[0]
    for taken, line in [
            ('SELECT ON SEQUENCE "Mail".postroom_notify_until', 'permission denied for sequence '
             'postroom_notify_until; the role needs SELECT there'),
            ('INSERT ON "Mail".postroom_outbox', 'permission denied for table postroom_outbox; the role '
             'needs INSERT, and SELECT of id, namespace, topic and dedupe_key, there'),
            ('SELECT ON "Mail".postroom_migrations', 'permission denied for table postroom_migrations; '
             'the role needs SELECT there'),
            ('USAGE ON SCHEMA "Mail"', 'permission denied for schema Mail; the role needs USAGE there')]:
        if 'postroom_notify_until' in taken and version >= 180000:
            continue  # without it no relay is woken there, and nothing fails
        sql(f'REVOKE {taken} FROM "{producer.name}"')
        assert line in producer.fails(1, 'enqueue', 't', '1'), taken
    sql(f'CREATE SCHEMA "Letters" GRANT USAGE ON SCHEMA "Letters" TO "{producer.name}"')
    plain = Postroom(producer.db, producer.cwd)
    for schema, where in [('Letters', 'schema Letters'), ('None', f'database {database}')]:
        line = plain.fails(1, 'migrate', '--schema', schema)
        assert f'permission denied for {where}; the role needs CREATE there' in line
    sql(f'REVOKE CONNECT ON DATABASE {database} FROM PUBLIC')
    assert 'the role needs CONNECT there' in producer.fails(1, 'enqueue', 't', '1')
