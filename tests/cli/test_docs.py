# SPDX-License-Identifier: Apache-2.0
"""Pages of the reference that people write are compared with the code, so that they cannot drift."""
import pathlib
import re
import sqlite3
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(path):
    return (ROOT / path).read_text(encoding='utf-8')


def sources(*patterns):
    paths = subprocess.check_output(['git', 'ls-files', '--', *patterns], cwd=ROOT, text=True).split()
    return {path: read(path) for path in paths}


def L1_documentation_lists_every_log_event():
    logged = set()
    for text in sources('src/*.c').values():
        for call in re.findall(r'\bpr_log_(?:event|box)\(([^;]*)\);', text):
            logged.update(re.findall(r'"([A-Z_]+)"', call))
        logged.update(name for call in re.findall(r'\blog_outage\(([^;]*)\);', text) for name in re.findall(r'"([A-Z_]+)"', call))
    listed = set(re.findall(r'^\| `([A-Z_]+)` \|', read('docs/log-events.md'), re.MULTILINE))
    prefix = re.compile('^(OUTBOX|INBOX)_')
    assert {prefix.sub('', name) for name in listed} == {prefix.sub('', name) for name in logged}


def L1_documentation_lists_the_fields_of_every_log_event():
    logged = {}
    for text in sources('src/*.c').values():
        for call, rest in re.findall(r'\bpr_log_(?:event|box)\(([^;]*)\);(.*?)\bpr_log_end\(', text, re.DOTALL):
            fields = re.findall(r'\bpr_log_\w+\([^;]*?"([a-z]\w*)"', rest)
            for name in re.findall(r'"(?:OUTBOX_|INBOX_)?([A-Z][A-Z_]+)"', call):
                logged.setdefault(name, set()).update(set(fields) - {'sink'})  # every event of a sink may have it
    listed = {name: set(re.findall(r'`(\w+)`', fields)) for name, fields in re.findall(
        r'^\| `(?:OUTBOX_|INBOX_)?([A-Z_]+)` \| [^|]*\| ([^|]*)\|', read('docs/log-events.md'), re.MULTILINE)}
    assert logged
    assert {name: fields for name, fields in logged.items() if listed[name] != fields} == {}


def settings_of(path):
    """{setting: default} of the tables of a page; a table without defaults has ''."""
    found = {}
    for table in re.findall(r'^\| Setting \| .*?\n\n', read(path) + '\n\n', re.MULTILINE | re.DOTALL):
        for line in table.split('\n')[2:]:
            cells = line.strip('| ').split(' | ')
            for name in re.findall(r'`([^`]+)`', cells[0]):
                found[name.replace('PROPERTY', '*')] = cells[1] if 'Default' in table else ''
    return found


def test_sinks_are_documented_with_every_setting_and_default(postroom):
    for sink in postroom.ok('sinks', '--json').objects:
        if sink['name'] == 'null':
            continue
        page = f'docs/sinks/{sink["name"]}.md'
        found = settings_of(page)
        assert set(found) == {param['name'] for param in sink['params']}, page
        for param in sink['params']:
            default = found[param['name']]
            if param['default'] and default:
                assert param['default'] in default, (page, param['name'])


@pytest.mark.parametrize('broker', ['amqp', 'kafka', 'nats', 'redis'])
def test_sources_are_documented_with_every_setting(broker):
    text = read(f'src/broker/{broker}/source.c')
    table = re.search(r'struct pr_param \w*params\[\] = \{(.*?)\n\};', text, re.DOTALL)
    macros = ''.join(text for path, text in sources(f'src/broker/{broker}/*.h', 'src/net/*.h').items())
    shared = {name: body for name, body in re.findall(r'#define (PR_\w*PARAMS)\b((?:.*\\\n)*.*\n)', macros)}
    text = table[1] + ''.join(body for name, body in shared.items() if name in table[1])
    text += ''.join(body for name, body in shared.items() if name in text)
    names = re.findall(r'\.name = "([^"]+)"|_FILE\((\w+), instance', text)
    names = [name for pair in names for name in pair if name]
    assert names and set(settings_of(f'docs/sources/{broker}.md')) == set(names)


def columns_of(path, table):
    text = re.search(rf'^CREATE TABLE (?:\{{schema\}})?{table} \((.*?)^\)', read(path), re.MULTILINE | re.DOTALL)[1]
    return re.findall(r'^\t(\w+) (?:\{schema\})?[a-zA-Z]\w+', re.sub(r'^\t(?:CONSTRAINT|PRIMARY|UNIQUE|CHECK|--).*$', '', text, flags=re.MULTILINE), re.MULTILINE)


@pytest.mark.parametrize('table', ['postroom_outbox', 'postroom_inbox', 'postroom_attempts'])
@pytest.mark.parametrize('store', ['pgsql', 'sqlite'])
def test_tables_are_documented_with_every_column(store, table):
    page = re.search(rf'^## `{table}`\n(.*?)(?=^## |\Z)', read('docs/tables.md'), re.MULTILINE | re.DOTALL)[1]
    rows = dict(re.findall(r'^\| `(\w+)` \| ([^|]*) \|', page, re.MULTILINE))
    columns = columns_of(f'src/store/{store}/schema/001_outbox.sql', table)
    assert columns
    assert [name for name in columns if name not in rows] == []


def test_tables_have_the_documented_columns(postroom):
    postroom.ok('migrate')
    with sqlite3.connect(postroom.db) as db:
        for table, page in re.findall(r'^## `(\w+)`\n(.*?)(?=^## |\Z)', read('docs/tables.md'), re.MULTILINE | re.DOTALL):
            known = {row[1] for row in db.execute(f'PRAGMA table_xinfo({table})')}
            for name, where in re.findall(r'^\| `(\w+)` \| ([^|]*) \|', page, re.MULTILINE):
                assert name in known or 'PostgreSQL' in where, f'{table}.{name}'


def test_readme_names_every_command(postroom):
    commands = re.findall(r'^  ([a-z]+) +[A-Z]', postroom.ok('--help').out.split('Commands\n')[1].split('\n\n')[0], re.MULTILINE)
    table = re.search(r'^## Commands\n(.*?)^## ', read('README.md'), re.MULTILINE | re.DOTALL)[1]
    assert [name for name in commands if name not in ('help', 'completion') and f'postroom {name}' not in table
            and f'`{name}' not in table and f', `{name}' not in table] == []


def test_c_reference_has_every_public_function():
    page = subprocess.check_output([ROOT / 'tools/reference', 'c-api'], text=True)
    names = {name for text in sources('include/*.h').values()
             for name in re.findall(r'^POSTROOM_API[^;]*?(postroom_\w+)\(', text, re.MULTILINE)}
    assert names
    assert [name for name in names if f'{name}(' not in page] == []


def test_command_reference_has_every_option(postroom):
    page = subprocess.check_output([ROOT / 'tools/reference', 'commands', postroom.program], text=True)
    for command in re.findall(r'^## ([a-z]+)$', page, re.MULTILINE):
        for option in re.findall(r'^ {2,6}(?:-\w, )?(--[a-z-]+)', postroom.ok('help', command).out, re.MULTILINE):
            assert option in page, f'{command} {option}'


def test_documented_commands_have_options_that_exist(postroom):
    """Of the commands in code blocks and code spans, those that the console blocks do not run included."""
    known = {name: set(re.findall(r'(?<!\S)(--[a-z][a-z-]*|-[a-z])\b', postroom.ok('help', name).out))
             for name in re.findall(r'^  ([a-z]+) +[A-Z]', postroom.ok('--help').out, re.MULTILINE)}
    wrong, seen = [], 0
    for path, text in sources('*.md', 'contrib/systemd/*', 'docs/man/*.scd').items():
        text = re.sub(r"\\\n\s*|'[^'\n]*'|\$\([^)\n]*\)", ' ', text)
        for command, rest in re.findall(r'(?:[`/*]|^|    |\t|\$ )postroom (?:-\S+ \S+ )*([a-z]+)\b([^`\n|*]*)', text, re.MULTILINE):
            options = re.findall(r'(?<!\S)(--[a-z][a-z-]*|-[a-z])(?=[\s=]|$)', rest.split(' -- ')[0])
            seen += len(options)
            wrong += [f'{path}: {command} {option}' for option in options if command in known and option not in known[command]]
    assert seen > 100
    assert not wrong
