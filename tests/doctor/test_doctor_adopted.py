# SPDX-License-Identifier: Apache-2.0
"""postroom doctor and tables that postroom adopt mirrors."""
import subprocess

import pytest

from adopt.test_adopt_pgsql import LAYOUT, MAPPING
from doctor.examining import examine, findings, is_quiet, only
from doctor.pgsql_place import mend, place, session  # noqa: F401  fixtures
from pgsql.conftest import database, db, postroom, sql, template, unmigrated  # noqa: F401  fixtures

INSERT = "INSERT INTO outbox (topic, payload) VALUES ('a', '{}')"


@pytest.fixture
def adopted(postroom, sql):  # noqa: F811
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    return postroom


def run(program, command):
    return subprocess.run(command.replace('postroom', program.program, 1), shell=True, check=True, cwd=program.cwd,
                          env=program.environment(), stdout=subprocess.PIPE, text=True).stdout


def U2_adopted_table_is_quiet_and_without_one_there_is_no_check(postroom, sql):  # noqa: F811
    assert 'adopted' not in {one['check'] for one in examine(postroom)}
    sql(LAYOUT)
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    is_quiet(postroom)
    assert {one['check']: one['level'] for one in examine(postroom)}['adopted'] == 'ok'


def U2_disabled_mirror_is_a_problem(adopted, sql, mend):  # noqa: F811
    sql('ALTER TABLE outbox DISABLE TRIGGER postroom_adopt_insert')
    found = only(adopted, 'adopted', 'problem')
    assert found['title'].endswith('outbox is disabled'), found
    mend(found)
    is_quiet(adopted)


def U2_missing_mirror_is_a_problem_and_its_rows_are_moved_by_the_advice(adopted, sql):  # noqa: F811
    sql('DROP TRIGGER postroom_adopt_insert ON outbox')
    sql(INSERT)
    found = only(adopted, 'adopted', 'problem')
    assert found['title'].endswith('outbox is missing'), found
    run(adopted, found['command'] + ' ' + ' '.join(MAPPING))
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]
    is_quiet(adopted)


def U2_partition_without_a_mirror_is_found_and_adopted_by_the_advice(postroom, sql):  # noqa: F811
    sql("""CREATE TABLE "out'box" (id bigint, day int, topic text, payload jsonb, processed_at timestamptz, PRIMARY KEY (id, day))
        PARTITION BY LIST (day)""")
    sql("""CREATE TABLE outbox_1 PARTITION OF "out'box" FOR VALUES IN (1)""")
    postroom.ok('adopt', "out'box", '--yes')
    is_quiet(postroom)
    sql("""CREATE TABLE outbox_2 PARTITION OF "out'box" FOR VALUES IN (2)""")
    sql("INSERT INTO outbox_2 VALUES (1, 2, 'a', '{}')")
    found = only(postroom, 'adopted', 'warning')
    assert 'is incomplete' in found['title'] and 'outbox_2' in found['detail'], found
    run(postroom, found['command'])
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]
    is_quiet(postroom)


def U2_missing_trigger_for_opened_rows_is_found_and_created_by_the_advice(adopted, sql):  # noqa: F811
    sql('DROP TRIGGER postroom_adopt_reopen ON outbox')
    found = only(adopted, 'adopted', 'warning')
    assert found['title'] == 'The mirror of table public.outbox is incomplete', found
    run(adopted, found['command'])
    is_quiet(adopted)


def U2_adopted_table_that_was_renamed_is_noted(adopted, sql, mend):  # noqa: F811
    sql("ALTER TABLE outbox RENAME TO \"new'box\"")
    found = only(adopted, 'adopted', 'note')
    assert found['title'] == 'The adopted table public.outbox does not exist', found
    adopted.ok('adopt', "new'box", '--yes', *MAPPING)
    mend(found)
    is_quiet(adopted)
    sql(INSERT.replace('outbox', "\"new'box\""))
    assert sql('SELECT count(*) FROM postroom_outbox') == [(1,)]


@pytest.mark.parametrize('done', ['delete', 'none'])
def U2_adopted_table_whose_rows_are_never_marked_is_quiet(postroom, sql, done):  # noqa: F811
    sql('CREATE TABLE outbox (id int PRIMARY KEY, topic text, payload jsonb)')
    postroom.ok('adopt', 'outbox', '--yes', '--column', f'done={done}')
    is_quiet(postroom)


def U2_rejected_rows_are_found_with_a_reason(adopted, sql):  # noqa: F811
    sql("INSERT INTO outbox (topic, payload) VALUES (repeat('x', 300), '{}')")
    found = only(adopted, 'adopted', 'warning')
    assert found['title'].startswith('1 rows of table ') and 'topic' in found['detail'], found
    assert 'topic' in run(adopted, found['command'])
    sql("UPDATE outbox SET topic = 'a'")
    adopted.ok('adopt', 'outbox', '--yes', *MAPPING)
    is_quiet(adopted)


def U2_new_producer_without_privileges_is_found_and_gets_them_by_the_advice(adopted, place, database, sql):  # noqa: F811
    role = 'p_' + database
    sql(f'CREATE ROLE {role} LOGIN')
    try:
        sql(f'GRANT INSERT ON outbox TO {role}')
        place.sql(database, INSERT, user=role)
        found = only(adopted, 'adopted', 'warning')
        assert found['title'].startswith('Producers of table ') and role in found['detail'], found
        refused = subprocess.run(found['command'].replace('postroom', adopted.program, 1), shell=True, cwd=adopted.cwd,
                                 env=adopted.environment(), stdout=subprocess.PIPE, text=True, check=False)
        assert refused.returncode == 1
        grants = [line for line in refused.stdout.splitlines() if line.startswith('GRANT ')]
        for grant in grants:
            sql(grant)
        run(adopted, found['command'])
        is_quiet(adopted)
        place.sql(database, INSERT, user=role)
        assert sql('SELECT count(*) FROM postroom_outbox') == [(2,)]
    finally:
        sql(f'DROP OWNED BY {role}')
        sql(f'DROP ROLE {role}')


@pytest.mark.parametrize('value, level', [(1_700_000_000, 'warning'), (2_000_000_000, 'problem')])
def U2_integer_key_near_its_end_is_found(postroom, sql, mend, value, level):  # noqa: F811
    sql(LAYOUT.replace('uuid PRIMARY KEY DEFAULT gen_random_uuid()', 'serial PRIMARY KEY'))
    postroom.ok('adopt', 'outbox', '--yes', *MAPPING)
    is_quiet(postroom)
    sql(f"SELECT setval('outbox_id_seq', {value})")
    found = only(postroom, 'adopted', level)
    assert found['title'].startswith('Column id of '), found
    mend(found)
    assert [one for one in findings(postroom) if one['check'] == 'adopted'] == []
    sql(INSERT)
