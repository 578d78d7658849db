# SPDX-License-Identifier: Apache-2.0
"""The statements of src/store/pgsql/sql: tools/sql prints them for psql, and the build checks their parameters."""
import os
import re
import subprocess

import psycopg2
import pytest

ROOT = os.path.normpath(os.path.join(os.path.dirname(__file__), '..', '..'))
TOOL = os.path.join(ROOT, 'tools', 'sql')
NAMES = subprocess.check_output([TOOL, '--list'], text=True).split()


def printed(*args):
    return subprocess.check_output([TOOL, *args], text=True)


def embed(tmp_path, text, name='example.sql'):
    """Status and errors of the build step for a file with this text."""
    path = tmp_path / name
    path.write_text(text)
    return subprocess.run([TOOL, '--embed', tmp_path / 'out.c', tmp_path / 'out.h', path],
                          stderr=subprocess.PIPE, text=True, check=False)


def Z1_every_named_statement_can_be_prepared_in_psql(postroom, db):
    assert len(NAMES) > 40
    with psycopg2.connect(db) as connection, connection.cursor() as cursor:
        prepared = 0
        for name in NAMES:
            statement = printed(name)
            prepared += 'PREPARE' in statement
            try:
                cursor.execute(statement.rsplit('EXECUTE', 1)[0])
            except psycopg2.Error as error:
                pytest.fail(f'{name}: {error}')
        cursor.execute('SELECT count(*) FROM pg_prepared_statements')
        assert cursor.fetchone() == (prepared,) and prepared > 40


def Z1_printed_statement_runs_with_given_parameters(postroom, db, sql):
    message = postroom.enqueue('orders', '{}')
    sql("INSERT INTO postroom_attempts (handler_name, id, number, error) VALUES ('', %s, 7, 'it''s down')", message)
    with psycopg2.connect(db) as connection, connection.cursor() as cursor:
        cursor.execute(printed('--schema', 'public', 'read_attempts', 'handler=', f'id={message}'))
        assert [(row[0], row[5]) for row in cursor.fetchall()] == [(7, "it's down")]


def Z1_store_prepares_statements_under_their_own_names(server, postroom, database):
    message = postroom.enqueue('orders', '{}')
    server.sql('postgres', f"ALTER DATABASE {database} SET log_statement = 'all'")
    postroom.ok('show', message)
    assert 'execute postroom_read_attempts: SELECT number' in server.log()


@pytest.mark.parametrize('text, reason', [
    ('-- Reads.\n-- doing: reading\nSELECT :id\n', 'unknown parameter :id'),
    ('-- Reads.\n-- doing: reading\n-- :id text\nSELECT 1\n', ':id is declared and never used'),
    ("-- Reads.\n-- doing: reading\n-- :id text\nSELECT ':id' -- :id\n", ':id is declared and never used'),
    ('-- Reads.\n-- doing: reading\nSELECT $1\n', '$1 has no name'),
    ('-- Reads.\n-- doing: reading\n-- :id text\n-- :id uuid\nSELECT :id\n', ':id is declared twice'),
    ('-- Reads.\n-- doing: reading\nSELECT {tabel}\n', 'unknown {tabel}'),
    ('-- Reads.\nSELECT 1\n', '-- doing: '),
])
def Z1_build_fails_on_wrong_parameter(tmp_path, text, reason):
    run = embed(tmp_path, text)
    assert run.returncode != 0
    assert reason in run.stderr
    assert 'example.sql' in run.stderr


def Z1_call_without_every_parameter_does_not_compile(tmp_path):
    run = embed(tmp_path, '-- Reads.\n-- doing: reading\n-- :id text\n-- :seq bigint\nSELECT :id, :seq, :id::uuid\n')
    assert run.returncode == 0, run.stderr
    assert '$1::text, $2::bigint, $1::text::uuid' in (tmp_path / 'out.c').read_text()

    def compiles(call):
        (tmp_path / 'call.c').write_text(f'#include "out.h"\nvoid call(struct pgsql_params *p);\nvoid call(struct pgsql_params *p) {{ {call}; }}\n')
        flags = subprocess.check_output(['pkg-config', '--cflags', 'libpq'], text=True).split()
        return subprocess.run(['gcc', '-std=gnu17', '-D_GNU_SOURCE', '-fsyntax-only', f'-I{ROOT}/src', f'-I{ROOT}/include', *flags,
                               tmp_path / 'call.c'], capture_output=True, check=False).returncode == 0
    assert compiles('pr_sql_bind_example(p, "a", 1)')
    assert not compiles('pr_sql_bind_example(p, "a")')
    assert not compiles('pr_sql_bind_example(p, "a", 1, 2)')


def Z1_statement_of_two_tables_is_made_for_each(tmp_path):
    run = embed(tmp_path, '-- Reads.\n-- doing: reading\n-- table: outbox inbox\n-- :id bigint\nSELECT {row} FROM {schema}{table} WHERE seq = :id\n')
    assert run.returncode == 0, run.stderr
    made = (tmp_path / 'out.c').read_text()
    assert 'SELECT id FROM {schema}postroom_outbox' in made and 'SELECT seq FROM {schema}postroom_inbox' in made
    assert '"postroom_example_outbox"' in made and '"postroom_example_inbox"' in made
    header = (tmp_path / 'out.h').read_text()
    assert header.count('pr_sql_bind_example(') == 1 and '*pr_sql_example(const struct pr_table *table)' in header


def Z1_fragment_is_part_of_a_statement_and_its_parameters_are_checked(tmp_path):
    (tmp_path / 'fragments').mkdir()
    (tmp_path / 'fragments' / 'condition.sql').write_text('-- Why.\nseq = :seq\nOR true\n')
    text = '-- Reads.\n-- doing: reading\n%sSELECT 1\n\tWHERE {condition}\n'
    assert embed(tmp_path, text % '-- :seq bigint\n').returncode == 0
    assert 'WHERE seq = $1::bigint' in (tmp_path / 'out.c').read_text()
    assert 'Why' not in (tmp_path / 'out.c').read_text()
    run = embed(tmp_path, text % '')
    assert run.returncode != 0 and 'unknown parameter :seq' in run.stderr


def Z1_binary_parameter_is_bound_as_bytes(tmp_path):
    run = embed(tmp_path, '-- Reads.\n-- doing: reading\n-- :ids bigint[] binary\nSELECT :ids\n')
    assert run.returncode == 0, run.stderr
    assert 'struct pr_span p_ids' in (tmp_path / 'out.h').read_text()


def Z1_tool_explains_wrong_names():
    for args, reason in [(('no_such',), 'there is no statement no_such'), (('read_attempts', 'nam=1'), 'has no parameter nam'),
                         (('read_attempts', 'id'), 'is not PARAMETER=VALUE')]:
        run = subprocess.run([TOOL, *args], stderr=subprocess.PIPE, text=True, check=False)
        assert run.returncode == 1 and reason in run.stderr, run.stderr
    assert re.search(r'tools/sql read_attempts', subprocess.run([TOOL], stderr=subprocess.PIPE, text=True, check=False).stderr)
