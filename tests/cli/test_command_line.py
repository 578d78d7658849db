# SPDX-License-Identifier: Apache-2.0
"""Options, commands, help: what is the same for all of them."""
import os
import re
import sqlite3

import pytest

COMMANDS = ['enqueue', 'relay', 'list', 'show', 'retry', 'purge', 'stats', 'top', 'inbox',
            'consume', 'step', 'checkpoint', 'lease', 'adopt', 'migrate', 'key', 'sinks', 'bench']


def test_help_teaches_in_one_screen(postroom):
    result = postroom.ok('--help')
    for command in COMMANDS:
        assert re.search(rf'^  {command} +\w', result.out, re.MULTILINE), command
    assert len(result.lines) <= 36
    assert max(map(len, result.lines)) < 80
    assert result.err == ''


def test_help_without_a_command_is_the_same_text(postroom):
    text = postroom.ok('--help').out
    assert postroom.ok('-h').out == text
    assert postroom.ok('help').out == text


@pytest.mark.parametrize('command', COMMANDS)
def test_every_command_has_synopsis_options_and_examples(postroom, command):
    result = postroom.ok('help', command)
    assert f'  postroom {command}' in result.out
    assert '--db URL' in result.out
    examples = result.out.split('Examples\n')[1]
    assert f'postroom {command}' in examples or f' {command} ' in examples
    assert max(map(len, result.lines)) < 80
    assert postroom.ok(command, '--help').out == result.out
    assert postroom.ok('-h', command).out == result.out


@pytest.mark.parametrize('command', COMMANDS)
def test_examples_of_the_help_have_options_that_exist(postroom, command):
    help_text = postroom.ok('help', command).out
    options = set(re.findall(r'--[a-z][a-z-]+', help_text.split('Examples\n')[0]))
    used = set(re.findall(r'(?<= )--[a-z][a-z-]+', help_text.split('Examples\n')[1]))
    assert used <= options


def test_help_creates_no_database(postroom, db):
    postroom.ok('enqueue', '--help')
    assert not db.exists()


def test_help_of_an_unknown_command_offers_the_nearest(postroom):
    assert 'did you mean relay?' in postroom.fails(2, 'help', 'realy')


def test_version_is_printed(postroom):
    assert re.fullmatch(r'postroom \d+\.\d+\.\d+\n', postroom.ok('--version').out)
    assert re.fullmatch(r'\d+\.\d+\.\d+', postroom.ok('--version', '--json').object['version'])


def test_missing_command_is_a_usage_error(postroom):
    assert '--help' in postroom.fails(2)


@pytest.mark.parametrize('typed, meant', [('lst', 'list'), ('enque', 'enqueue'),
                                          ('stat', 'stats'), ('migrat', 'migrate')])
def test_unknown_command_offers_the_nearest(postroom, typed, meant):
    assert f'did you mean {meant}?' in postroom.fails(2, typed)


def test_unknown_command_without_a_near_one_points_to_help(postroom):
    assert '--help' in postroom.fails(2, 'xyzzy-plugh')


@pytest.mark.parametrize('args, meant', [
    (['list', '--stauts', 'dead'], '--status'),
    (['--jsn', 'list'], '--json'),
    (['relay', '--batchsize=5'], '--batch-size'),
    (['enqueue', 't', '{}', '--tennant', 'x'], '--tenant'),
    (['list', '--lim'], '--limit')])
def test_unknown_option_offers_the_nearest(postroom, args, meant):
    assert f'did you mean {meant}?' in postroom.fails(2, *args)


def test_unknown_option_without_a_near_one_points_to_help(postroom):
    assert 'postroom help list' in postroom.fails(2, 'list', '--xyzzyplugh')
    assert '-- ' in postroom.fails(2, 'list', '-x') + ' '


def test_options_are_accepted_in_any_position(postroom, tmp_path):
    other = tmp_path / 'other.db'
    postroom.ok('--key', 'k', '-d', other, 'enqueue', '--json', 't', '--priority=5', '{}')
    for args in (['list', '--json', '--db', other], ['--db', other, '--json', 'list'],
                 ['--json', f'--db={other}', '--topic', 't', 'list'], ['list', f'-d{other}', '--json']):
        assert postroom.ok(*args).object['key'] == 'k'


def test_two_dashes_end_the_options(postroom):
    postroom.ok('enqueue', 'numbers', '--', '-5')
    postroom.ok('enqueue', '--', '--topic', '"x"')
    assert [row['topic'] for row in postroom.rows()] == ['--topic', 'numbers']
    assert postroom.rows()[1]['payload'] == -5
    assert '--' in postroom.fails(2, 'enqueue', 'numbers', '-5')


def test_a_missing_value_is_named(postroom):
    assert '--topic needs a value' in postroom.fails(2, 'list', '--topic')
    assert '--db needs a value: URL' in postroom.fails(2, 'list', '-d')


def test_flag_accepts_no_value(postroom):
    assert '--json takes no value' in postroom.fails(2, 'list', '--json=yes')


@pytest.mark.parametrize('args, word', [
    (['list', '--limit', 'many'], 'limit'), (['list', '--limit', '0'], 'limit'),
    (['relay', '--to', 'null:', '--lease', '5'], 'lease'),
    (['relay', '--to', 'null:', '--workers', '0'], 'workers'),
    (['relay', '--to', 'null:', '--backoff', 'linear'], 'exponential'),
    (['relay', '--to', 'null:', '--on-dead', 'stop'], 'continue'),
    (['relay', '--to', 'null:', '--retention', '-1s'], 'never'),
    (['relay', '--to', 'null:', '--dedupe-retention', 'long'], 'never'),
    (['relay', '--to', 'null:', '--dedupe-retention', '101000d'], 'never'), (['lease', 'table'], 'lane'),
    (['list', '--status', 'deed'], 'dead'), (['list', '--log-level', 'loud'], 'info'),
    (['list', '--log-format', 'xml'], 'json'), (['list', '--tenant', 'acme'], 'UUID'),
    (['enqueue', 't', '{}', '--priority', '3601'], '3600'),
    (['enqueue', 't', '{}', '--max-payload', '1G'], 'max-payload'),
    (['enqueue', 't', '{}', '--delay', '-5s'], 'delay'),
    (['purge', '--status', 'pending'], 'delivered')])
def test_invalid_value_error_names_the_accepted_values(postroom, args, word):
    line = postroom.fails(2, *args)
    assert word in line and args[-1] in line


@pytest.mark.parametrize('args', [['show'], ['key', 'a', 'b'], ['enqueue']])
def test_a_missing_argument_shows_the_synopsis(postroom, args):
    assert 'postroom ' + args[0] in postroom.fails(2, *args)


@pytest.mark.parametrize('args', [['list', 'x'], ['show', 'a', 'b'], ['enqueue', 't', '{}', 'x'],
                                  ['stats', 'now'], ['lease', 'row', 'lane'], ['key', 'a', 'b', 'c', 'd', 'e', 'f']])
def test_an_argument_too_many_is_named(postroom, args):
    assert 'too many: ' + args[-1] in postroom.fails(2, *args)


def G1_database_is_from_option_then_environment_then_default(postroom, tmp_path):
    postroom.enqueue('environment')
    postroom.ok('--db', 'sqlite:given.db', 'enqueue', 'given', '{}')
    postroom.ok('enqueue', 'default', '{}', env={'POSTROOM_DB': ''})
    for path, topic in ((postroom.db, 'environment'), ('given.db', 'given'),
                        ('postroom.db', 'default')):
        with sqlite3.connect(tmp_path / path) as connection:
            assert connection.execute('SELECT topic FROM postroom_outbox').fetchall() == [(topic,)]


@pytest.mark.parametrize('url', ['mysql://localhost/shop', 'oracle:shop'])
def G1_database_of_an_unknown_kind_is_a_usage_error(postroom, url):
    line = postroom.fails(2, '--db', url, 'list')
    assert url.split(':')[0] in line and 'sqlite:' in line


def test_database_url_without_a_path_is_a_usage_error(postroom):
    assert 'sqlite:' in postroom.fails(2, '--db', 'sqlite:', 'list')


@pytest.mark.parametrize('args', [['list'], ['show', 'x'], ['retry', 'x'], ['retry', '--dead'],
                                  ['purge', '--status', 'dead'], ['stats'], ['lease'],
                                  ['lease', 'row'], ['migrate', '--status']])
def test_read_commands_create_nothing(postroom, tmp_path, args):
    line = postroom.fails(1, *args)
    assert 'no database' in line and 'postroom migrate' in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('args', [['list'], ['stats'], ['purge', '--status', 'dead']])
def U1_database_without_tables_asks_for_migrate(postroom, sql, args):
    sql('CREATE TABLE orders (id INTEGER)')
    assert 'postroom migrate' in postroom.fails(1, *args)
    assert sql('SELECT name FROM sqlite_schema') == [('orders',)]
