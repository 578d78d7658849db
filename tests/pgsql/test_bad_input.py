# SPDX-License-Identifier: Apache-2.0
"""Errors are printed in one clear line, with the right status, and without the password."""
import contextlib
import json
import pathlib
import signal
import subprocess

import pytest

from conftest import PROGRAM, wait_until

SECRET = 'hunter2xyz'


def U1_missing_tables_error_names_migrate(unmigrated):
    for command in (['enqueue', 't', '1'], ['relay', '--to', 'null:'], ['relay', '--drain', '--to', 'null:'],
                    ['list'], ['stats'], ['retry', '--dead'], ['purge', '--status', 'dead', '--yes'],
                    ['show', '00000000-0000-4000-8000-000000000000'], ['enqueue', '--ndjson', '/dev/null']):
        line = unmigrated.fails(1, *command)
        assert 'has no Postroom tables; run `postroom migrate`' in line, line


def D5_relay_reports_a_dropped_table_and_waits_for_it(postroom, relay, sql):
    running = relay('--to', 'null:')
    sql('ALTER TABLE postroom_outbox RENAME TO elsewhere')
    running.wait_for('run `postroom migrate`', 3)
    sql('ALTER TABLE elsewhere RENAME TO postroom_outbox')
    postroom.enqueue()
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the delivery')
    running.stop()


def U1_newer_schema_is_refused(postroom, sql):
    sql("INSERT INTO postroom_migrations (version, name, applied_by, compatible_with) VALUES (999, 'later', '99.0', 999)")
    for command in (['enqueue', 't', '1'], ['relay', '--to', 'null:'], ['stats'], ['migrate']):
        line = postroom.fails(1, *command)
        assert '999' in line and 'newer' in line, line
    assert sql('SELECT count(*) FROM postroom_outbox') == [(0,)]


def U1_missing_schema_is_reported(postroom):
    line = postroom.fails(1, 'stats', '--schema', 'nowhere')
    assert 'run `postroom migrate`' in line, line


@pytest.mark.parametrize('payload, reason', [
    ('"\\u0000"', 'u0000'),
    ('"\\ud800"', 'surrogate'),
    ('1e200000', 'number'),
    ('[' * 7000 + ']' * 7000, 'deep'),
    ('{"a": 1', ''),
], ids=['nul', 'surrogate', 'number', 'deep', 'broken'])
def E5_json_that_jsonb_refuses_is_refused_before_the_write(postroom, sql, payload, reason):
    line = postroom.fails(1, 'enqueue', 't', '-', input=payload)
    assert 'payload' in line and reason in line, line
    assert len(line) < 300
    assert sql('SELECT count(*) FROM postroom_outbox') == [(0,)]


def E5_json_of_maximum_depth_is_accepted(postroom, tmp_path):
    depth = 1
    while postroom('enqueue', 't', '-', input='[' * depth + ']' * depth).code == 0 and depth < 100_000:
        depth *= 2
    assert depth > 64
    assert postroom.stats()['pending'] > 6
    postroom.ok('relay', '--drain', '--to', 'file:out')
    assert len((tmp_path / 'out').read_text().splitlines()) == postroom.stats()['delivered']


def E5_text_that_is_not_utf8_is_refused(postroom, sql):
    for args in ([b't\xff', b'1'], [b't', b'"\xe4"'], [b't', b'1', b'--key', b'\xc3'],
                 [b't', b'1', b'--header', b'a=\xf5']):
        result = postroom_raw(postroom, 'enqueue', *args)
        assert result.returncode == 1 and result.stdout == b'', result
        assert len(result.stderr.splitlines()) == 1 and b'UTF-8' in result.stderr, result
    assert sql('SELECT count(*) FROM postroom_outbox') == [(0,)]


def postroom_raw(postroom, *args):
    return subprocess.run([PROGRAM, *args], env=postroom.environment(), cwd=postroom.cwd, check=False,
                          capture_output=True, stdin=subprocess.DEVNULL)


def E5_a_database_in_another_encoding_is_refused(place, postroom, database):
    other = f'{database}_latin'
    place.sql('postgres', f"CREATE DATABASE {other} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' "
              'TEMPLATE template0')
    try:
        postroom.db = place.url(other)
        for command in (['migrate'], ['enqueue', 't', '1'], ['relay', '--to', 'null:']):
            assert 'needs one in UTF8' in postroom.fails(1, *command)
    finally:
        place.sql('postgres', f'DROP DATABASE {other} WITH (FORCE)')


def E5_client_encoding_of_url_and_environment_is_ignored(place, postroom, database, tmp_path):
    word = 'Größe ∞ 🚚'
    postroom.db = place.url(database, client_encoding='LATIN1')
    postroom.enqueue('t', json.dumps(word, ensure_ascii=False), '--key', word)
    postroom.ok('relay', '--drain', '--to', 'file:out', env={'PGCLIENTENCODING': 'LATIN1'})
    message = json.loads((tmp_path / 'out').read_text(encoding='utf-8'))
    assert (message['payload'], message['key']) == (word, word)
    assert postroom.rows()[0]['key'] == word


@pytest.mark.parametrize('url, reason', [
    ('postgres://u@/db?host=/x&nonsense=1', 'nonsense'),
    ('postgres://u@/db?host=/x&sslmode=maybe', 'sslmode'),
    ('postgres://u@/db?host=/x&target_session_attrs=most', 'target_session_attrs'),
    ('postgres://u@a,b:1,c:2,d/db?port=1,2', 'ports'),
    ('postgres://u@[::1/db', ''),
    ('postgres://u@h:port/db', 'port'),
    ('mysql://u@h/db', 'mysql'),
])
def G1_invalid_url_is_a_usage_error(unmigrated, url, reason):
    unmigrated.db = url
    for command in (['stats'], ['relay', '--to', 'null:'], ['enqueue', 't', '1']):
        assert reason in unmigrated.fails(2, *command)


# All that can be done with a password that is wrong, or wrongly written.
def urls(place, database):
    yield place.url(database, user='guarded', password=SECRET)
    yield place.url(database, user='guarded') + f'&password={SECRET}'
    yield place.url('nowhere', user='guarded', password=SECRET)
    yield place.url(database, user='guarded', password=SECRET, host='/nowhere')
    yield place.url(database, user='guarded', password=SECRET, nonsense=1)
    yield place.url(database, user='guarded', password=SECRET, sslmode='maybe')
    for written in (f'{SECRET}/{SECRET}', f'{SECRET}@{SECRET}', f'{SECRET}?{SECRET}', f'{SECRET}%zz{SECRET}',
                    f'12/{SECRET}', f'{SECRET}#{SECRET}', f'{SECRET}:{SECRET}', f'{SECRET}?host={SECRET}'):
        yield f'postgres://guarded:{written}@/{database}?host={place.host}'
        yield f'postgresql://guarded:{written}@localhost:1/{database}'


def G1_error_messages_show_no_password(server, postroom, database, sql):
    sql("CREATE ROLE guarded LOGIN PASSWORD 'another'")
    server.demand_password('guarded')
    for url in urls(server, database):
        for command in (['stats'], ['enqueue', 't', '1'], ['migrate'], ['relay', '--drain', '--to', 'null:'],
                        ['--log-level', 'debug', '--log-format', 'json', 'stats']):
            if 'relay' in command and ('/nowhere' in url or 'localhost:1' in url):
                continue  # it waits for such a server: see below
            result = postroom('--db', url, *command)
            assert result.code in (1, 2), (url, result)
            assert SECRET not in result.out + result.err, (url, result)
            assert len(result.err.splitlines()) == 1, (url, result)


@pytest.mark.parametrize('form', ['user', 'parameter', 'option=value', 'environment'])
def G1_a_running_relay_shows_no_password(server, postroom, relay, database, sql, form):
    """Neither in its log, through an outage, nor in its command line."""
    sql(f"CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '{SECRET}'")
    server.demand_password('guarded')
    url = server.url(database, user='guarded', password=SECRET) if form != 'parameter' else (
        server.url(database, user='guarded') + f'&password={SECRET}')
    words, env = [], {}
    if form == 'environment':
        env['POSTROOM_DB'] = url
    elif form == 'option=value':
        words = [f'--db={url}']
    else:
        words = ['--db', url]
    running = relay(*words, '--to', 'null:', '--log-level', 'debug', env=env)
    postroom.enqueue()
    wait_until(lambda: sql("SELECT 1 FROM postroom_outbox WHERE status = 'delivered'"), 'the delivery')
    line = pathlib.Path('/proc', str(running.process.pid), 'cmdline').read_bytes()
    assert b'relay' in line and SECRET.encode() not in line
    for pid in server.backends(database):
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            assert SECRET.encode() not in pathlib.Path('/proc', str(pid), 'cmdline').read_bytes()
    server.stop(signal.SIGQUIT)
    running.wait_for('OUTBOX_STORE_TROUBLE', 3)
    server.start()
    sql("ALTER ROLE guarded PASSWORD 'changed'")
    server.terminate(database)
    running.wait_for('password authentication failed', 2)
    assert SECRET not in running.log
    assert running.process.poll() is None
