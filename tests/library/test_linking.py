# SPDX-License-Identifier: Apache-2.0
"""What an application takes on board with one of the libraries, and what it does not."""
import os
import subprocess

import pytest

from conftest import ROOT

BUILD = os.environ.get('POSTROOM_BUILD') or str(ROOT / 'build')
LIBRARIES = {  # its own database's client, and the others'
    'postroom-sqlite': ('sqlite3', ('pq',), 'sqlite3_', ('PQ', 'pg_')),
    'postroom-libpq': ('pq', ('sqlite3',), 'PQ', ('sqlite3_',)),
}
NOT_FOR_APPLICATIONS = ('curl', 'rdkafka', 'hiredis', 'nats', 'rabbitmq', 'yaml')


def path_of(library, ending):
    return os.path.join(BUILD, 'src', f'lib{library}.{ending}')


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loaded_with(library):
    """The names of all that the loader brings in, libpq.so.5 as pq."""
    lines = output_of('ldd', path_of(library, 'so')).splitlines()
    names = [os.path.basename(line.split()[0]) for line in lines]
    return {name.removeprefix('lib').split('.so')[0] for name in names}


def symbols_of(*command):
    return {line.split()[-1].split('@')[0] for line in output_of(*command).splitlines()
            if line.strip() and not line.endswith(':')}


@pytest.mark.parametrize('library', LIBRARIES)
def Z1_a_library_loads_its_own_database_and_no_other(library):
    own, others, _, _ = LIBRARIES[library]
    loaded = loaded_with(library)
    assert own in loaded
    assert not loaded & {*others, *NOT_FOR_APPLICATIONS}


@pytest.mark.parametrize('library', LIBRARIES)
def Z1_a_static_library_asks_for_its_own_database_and_no_other(library):
    _, _, own, others = LIBRARIES[library]
    wanted = symbols_of('nm', '-u', path_of(library, 'a'))
    assert any(name.startswith(own) for name in wanted)
    assert not {name for name in wanted if name.startswith(others)}
    assert 'pthread_create' not in wanted


@pytest.mark.parametrize('library', LIBRARIES)
def Z1_a_library_shows_nothing_but_its_public_names(library):
    shown = symbols_of('nm', '-D', '--defined-only', path_of(library, 'so'))
    shown = {name for name in shown if not name.startswith('POSTROOM_')}  # the version's own name
    assert 'postroom_enqueue' in shown
    assert not {name for name in shown if not name.startswith('postroom_')}
