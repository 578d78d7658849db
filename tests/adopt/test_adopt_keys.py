# SPDX-License-Identifier: Apache-2.0
"""postroom adopt --keys: unique keys in the application's own table, while it is written."""
import subprocess

import psycopg2
import pytest

from adopt.linter import find_linter
from adopt.test_adopt_pgsql import LAYOUT, work  # noqa: F401  fixture
from conftest import wait_until
from pgsql.conftest import database, db, place, postroom, shared, sql, template, unmigrated  # noqa: F401  fixtures

MISSING = 'SELECT count(*) FROM outbox WHERE idempotency_key IS NULL'
INDEX = """SELECT indisvalid, indisunique FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
    WHERE indrelid = 'outbox'::regclass AND c.relname LIKE 'postroom_keys_%%'"""
NOT_NULL = "SELECT attnotnull FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attname = 'idempotency_key'"


@pytest.fixture
def table(sql):  # noqa: F811
    sql(LAYOUT)
    sql("INSERT INTO outbox (topic, payload) SELECT 'old', '{}' FROM generate_series(1, 500)")


def U2_keys_are_added_while_producers_write(postroom, sql, work, table):  # noqa: F811
    made = []

    def insert(cursor):
        cursor.execute("INSERT INTO outbox (topic, payload) VALUES ('new', '{}') RETURNING id")
        made.append(cursor.fetchone())
    producers = [work(insert) for _ in range(2)]
    wait_until(lambda: len(made) > 10, 'traffic')
    assert postroom.ok('adopt', 'outbox', '--keys', '--yes', '--chunk', '50', '--json').object['keys'] >= 500
    for producer in producers:
        producer.stop()
    assert sql("SELECT count(*) FROM outbox WHERE idempotency_key IS NULL AND topic = 'old'") == [(0,)]
    assert (sql(INDEX), sql(NOT_NULL)) == ([(True, True)], [(False,)])
    # Rows without a key are tolerated until they are required.
    sql("INSERT INTO outbox (topic, payload) VALUES ('new', '{}'), ('new', '{}')")
    assert sql(MISSING)[0][0] >= 2


def U2_killed_backfill_of_keys_continues(postroom, sql, table):  # noqa: F811
    sql('ALTER TABLE outbox ADD COLUMN idempotency_key uuid')
    first = postroom.start('adopt', 'outbox', '--keys', '--yes', '--chunk', '1')
    wait_until(lambda: first.poll() is not None or sql(MISSING)[0][0] < 450, 'some keys')
    first.kill()
    first.wait()
    before = dict(sql('SELECT id, idempotency_key FROM outbox WHERE idempotency_key IS NOT NULL'))
    wait_until(lambda: not sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom' "
                               "AND datname = current_database()")[0][0], 'the end of its session')
    postroom.ok('adopt', 'outbox', '--keys', '--yes')
    after = dict(sql('SELECT id, idempotency_key FROM outbox'))
    assert before.items() <= after.items() and None not in after.values()
    assert sql(INDEX) == [(True, True)]


def U2_keys_can_be_computed_from_the_row(postroom, sql, table):  # noqa: F811
    postroom.ok('adopt', 'outbox', '--keys', '--yes', '--key-sql', "md5(topic || ':' || id)::uuid")
    assert sql("SELECT count(*) FROM outbox WHERE idempotency_key = md5(topic || ':' || id)::uuid") == [(500,)]
    sql("INSERT INTO outbox (topic, payload) VALUES ('new', '{}')")
    assert 'gives NULL' in postroom.fails(1, 'adopt', 'outbox', '--keys', '--yes', '--key-sql', 'NULL')


def U2_duplicate_keys_are_named_and_kept(postroom, sql, table):  # noqa: F811
    sql('ALTER TABLE outbox ADD COLUMN idempotency_key text')
    sql("UPDATE outbox SET idempotency_key = 'order-17' WHERE id IN (SELECT id FROM outbox LIMIT 2)")
    refused = postroom('adopt', 'outbox', '--keys', '--yes')
    assert refused.code == 1 and '1 keys of public.outbox occur more than once, such as order-17' in refused.err
    assert sql('SELECT count(*) FROM outbox') == [(500,)] and sql(INDEX) == []


def U2_invalid_leftover_of_the_index_is_rebuilt(postroom, sql, table):  # noqa: F811
    postroom.ok('adopt', 'outbox', '--keys', '--yes')
    (name, ), = sql("SELECT c.relname FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid WHERE c.relname LIKE 'postroom_keys_%%'")
    sql(f'DROP INDEX {name}')
    sql('INSERT INTO outbox (topic, payload, idempotency_key) SELECT topic, payload, idempotency_key FROM outbox LIMIT 1')
    with pytest.raises(psycopg2.errors.UniqueViolation):
        sql(f'CREATE UNIQUE INDEX CONCURRENTLY {name} ON outbox (idempotency_key)')
    assert sql(INDEX) == [(False, True)]
    sql('DELETE FROM outbox WHERE id IN (SELECT max(id::text)::uuid FROM outbox GROUP BY idempotency_key HAVING count(*) > 1)')
    postroom.ok('adopt', 'outbox', '--keys', '--yes')
    assert sql(INDEX) == [(True, True)]


def U2_required_keys_are_a_later_step(postroom, sql, table):  # noqa: F811
    postroom.ok('adopt', 'outbox', '--keys', '--yes')
    sql("INSERT INTO outbox (topic, payload) VALUES ('new', '{}')")
    for _ in range(2):
        postroom.ok('adopt', 'outbox', '--keys', '--require-keys', '--yes')
        assert (sql(NOT_NULL), sql(MISSING)) == ([(True,)], [(0,)])
        assert sql("SELECT count(*) FROM pg_constraint WHERE conname = 'postroom_key_is_required'") == [(0,)]
    with pytest.raises(psycopg2.errors.NotNullViolation):
        sql("INSERT INTO outbox (topic, payload) VALUES ('new', '{}')")


def U2_keys_are_unique_within_their_tenant(postroom, sql):  # noqa: F811
    sql('CREATE TABLE "OutboxMessages" ("Id" bigserial PRIMARY KEY, "TenantId" uuid, "IdempotencyKey" uuid)')
    # NULLs are never equal.
    assert 'TenantId may be NULL' in postroom.ok('adopt', 'OutboxMessages', '--keys', '--yes').out
    key = '11111111-2222-4333-8444-555555555555'
    sql('INSERT INTO "OutboxMessages" ("TenantId", "IdempotencyKey") VALUES (gen_random_uuid(), %s), (gen_random_uuid(), %s)', key, key)
    sql('INSERT INTO "OutboxMessages" ("TenantId", "IdempotencyKey") VALUES (%s, %s)', key, key)
    with pytest.raises(psycopg2.errors.UniqueViolation):
        sql('INSERT INTO "OutboxMessages" ("TenantId", "IdempotencyKey") VALUES (%s, %s)', key, key)


def U2_dry_run_of_keys_changes_nothing_and_passes_a_linter(postroom, sql, tmp_path, table):  # noqa: F811
    before = sql("SELECT count(*) FROM pg_attribute"), sql('SELECT count(*) FROM pg_class')
    script = tmp_path / 'keys.sql'
    script.write_text(postroom.ok('adopt', 'outbox', '--keys', '--dry-run').out)
    assert 'CREATE UNIQUE INDEX CONCURRENTLY' in script.read_text()
    assert before == (sql("SELECT count(*) FROM pg_attribute"), sql('SELECT count(*) FROM pg_class'))
    assert 'SET NOT NULL' in postroom.ok('adopt', 'outbox', '--keys', '--require-keys', '--dry-run').out
    for options in [], ['--require-keys']:
        script.write_text(postroom.ok('adopt', 'outbox', '--keys', '--dry-run', *options).out)
        found = subprocess.run([find_linter(), script], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout


def U2_keys_of_a_partitioned_table_are_unique_within_each_partition(postroom, sql):  # noqa: F811
    sql('CREATE TABLE outbox (id bigserial, day int, topic text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)')
    for day in 1, 2:
        sql(f'CREATE TABLE outbox_{day} PARTITION OF outbox FOR VALUES IN ({day})')
        sql('INSERT INTO outbox (day, topic) SELECT %s, %s FROM generate_series(1, 20)', day, 'a')
    done = postroom.ok('adopt', 'outbox', '--keys', '--require-keys', '--yes', '--chunk', '7')
    assert 'within each partition' in done.out
    valid = """SELECT indrelid::regclass::text, indisvalid FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid
        WHERE c.relname LIKE 'postroom_keys_%%' ORDER BY 1"""
    assert sql(valid) == [('outbox_1', True), ('outbox_2', True)]
    assert sql('SELECT count(DISTINCT idempotency_key) FROM outbox') == [(40,)]
    # A new partition gets its index in the next run.
    sql('CREATE TABLE outbox_3 PARTITION OF outbox FOR VALUES IN (3)')
    postroom.ok('adopt', 'outbox', '--keys', '--require-keys', '--yes')
    assert sql(valid)[2:] == [('outbox_3', True)]
