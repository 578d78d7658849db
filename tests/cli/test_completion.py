# SPDX-License-Identifier: Apache-2.0
"""The completion scripts, in the shells that they are for."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess

import pytest

from conftest import PROGRAM, ROOT, wait_until

OPTIONS = pathlib.Path(PROGRAM).parent / 'meson-info' / 'intro-buildoptions.json'

def needs(shell):
    return pytest.mark.skipif(not shutil.which(shell), reason=f'{shell} is not installed')


def commands_of(postroom):
    return [line.split()[0] for line in postroom.ok('--help').out.split('Commands\n')[1].split('\n\n')[0].splitlines()]


def options_of(postroom, command):
    return set(re.findall(r'^ +(?:-\w, )?(--[a-z-]+)', postroom.ok('help', command).out, re.MULTILINE))


@pytest.fixture
def bash(postroom, tmp_path):
    script = tmp_path / 'postroom.bash'
    script.write_text(postroom.ok('completion', 'bash').out)

    def complete(*words):
        run = ('source "$1"; shift; COMP_WORDS=(postroom "$@"); COMP_CWORD=$#; _postroom 2>&1; '
               'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(['bash', '--norc', '-c', run, 'bash', script, *words], cwd=tmp_path, check=True,
                              stdout=subprocess.PIPE, text=True)
        return done.stdout.split()
    return complete


@pytest.fixture
def fish(postroom, tmp_path):
    script = tmp_path / 'postroom.fish'
    script.write_text(postroom.ok('completion', 'fish').out)

    def complete(line):
        done = subprocess.run(['fish', '--no-config', '-c', f'source {script}; complete -C "{line}"'], cwd=tmp_path,
                              check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, 'HOME': str(tmp_path)})
        return [candidate.split('\t')[0] for candidate in done.stdout.splitlines()]
    return complete


@pytest.fixture
def zsh(postroom, tmp_path):
    """Types a line with tabs into an interactive zsh; returns the arguments that a postroom in the PATH got."""
    (tmp_path / 'postroom.zsh').write_text(postroom.ok('completion', 'zsh').out)
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / 'postroom').write_text('#!/bin/sh\nprintf "%s\\n" "$@" >part && mv part args\n')
    (tmp_path / 'bin' / 'postroom').chmod(0o755)

    def complete(typed):
        args = tmp_path / 'args'
        args.unlink(missing_ok=True)
        leader, follower = pty.openpty()
        env = {**os.environ, 'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}', 'TERM': 'dumb', 'HOME': str(tmp_path)}
        shell = subprocess.Popen(['zsh', '-f', '-i'], stdin=follower, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, cwd=tmp_path, env=env, start_new_session=True)
        try:
            os.write(leader, b'autoload -U compinit; compinit -u -D; source ./postroom.zsh; touch loaded\n')
            wait_until((tmp_path / 'loaded').exists, 'the script to load')
            os.write(leader, typed.encode() + b'\n')
            wait_until(args.exists, f'zsh to run {typed!r}')
            return args.read_text().splitlines()
        finally:
            shell.kill()
            shell.wait()
            os.close(leader)
            os.close(follower)
    return complete


def test_bash_completes_every_command_and_every_option(postroom, bash):
    commands = commands_of(postroom)
    assert len(commands) > 15
    assert bash('') == commands
    for command in commands:
        assert {word for word in bash(command, '--') if word.startswith('--')} == options_of(postroom, command), command


def test_bash_completes_values_words_and_files(bash, tmp_path):
    (tmp_path / 'shop.yaml').write_text('')
    assert bash('list', '--status', 'de') == ['delivered', 'dead']
    assert bash('list', '--status', '=', 'pend') == ['pending']
    assert bash('--db', 'relay', 'inb') == ['inbox']
    assert bash('inbox', 'su') == ['submit']
    assert bash('-c', 'sho') == ['shop.yaml']
    assert bash('lease', '') == ['row', 'lane']
    assert bash('sinks', 'fi') == ['file']


@needs('fish')
def test_fish_completes_every_command_and_every_option(postroom, fish):
    commands = commands_of(postroom)
    assert sorted(fish('postroom ')) == sorted(commands)
    for command in ('relay', 'enqueue', 'key', 'inbox'):
        assert {word for word in fish(f'postroom {command} --') if word.startswith('--')} >= options_of(postroom, command)
    assert sorted(fish('postroom list --status de')) == ['dead', 'delivered']
    assert fish('postroom inbox su') == ['submit']


@needs('zsh')
def test_zsh_completes_commands_options_and_values(zsh):
    assert zsh('postroom compl\tz\t') == ['completion', 'zsh']
    assert zsh('postroom list --stat\tdeliv\t') == ['list', '--status=delivered']
    assert zsh('postroom inbox subm\t') == ['inbox', 'submit']


def test_completion_refuses_an_unknown_shell(postroom):
    assert postroom.fails(2, 'completion', 'tcsh') == 'completion: unknown shell tcsh; use bash, zsh or fish'


def test_version_in_json_names_libraries_and_sinks(postroom):
    version = postroom.ok('--version', '--json').object
    assert version['sinks'] == [sink['name'] for sink in postroom.ok('sinks', '--json').objects]
    assert version['stores'] == ['sqlite', 'postgres']
    assert re.match(r'(gcc|.*[Cc]lang) \d+\.', version['compiler'])
    newest = {store: max(int(path.name[:3]) for path in (ROOT / 'src' / 'store' / folder / 'schema').glob('*.sql'))
              for store, folder in (('sqlite', 'sqlite'), ('postgres', 'pgsql'))}
    assert version['schema'] == newest
    assert (version['revision'], version['date']) == ('unknown', 'unknown')  # of a tarball: tests/package/test_dist.py
    for library in ('sqlite', 'libpq', 'openssl', 'libyaml', 'libmicrohttpd'):
        assert re.match(r'\d+\.\d+', version['libraries'][library]), library


@pytest.mark.skipif(not OPTIONS.exists(), reason='not beside its build')
def test_version_in_json_names_the_options_of_the_build(postroom):
    options = {option['name']: option['value'] for option in json.loads(OPTIONS.read_text())}
    version = postroom.ok('--version', '--json').object
    assert version['build'] == {'machine': os.uname().machine, 'type': options['buildtype'], 'sanitizer': options['b_sanitize']}
    for sink in ('http', 'kafka', 'redis', 'amqp', 'nats'):
        assert (sink in version['sinks']) == (options[sink] != 'disabled')
