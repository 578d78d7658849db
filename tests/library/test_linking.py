# SPDX-License-Identifier: Apache-2.0
"""What an application takes on board with one of the libraries, and what it does not."""
import os
import shutil
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


def D2_embedded_relay_includes_both_databases_and_no_builtin_sink():
    loaded = loaded_with('postroom-relay')
    assert {'sqlite3', 'pq'} <= loaded
    assert not loaded & {*NOT_FOR_APPLICATIONS}
    wanted = symbols_of('nm', '-u', path_of('postroom-relay', 'a'))
    assert 'pthread_create' in wanted
    assert not {'fork', 'vfork', 'execve', 'posix_spawn', '_exit', 'exit'} & wanted


@pytest.mark.parametrize('library', [*LIBRARIES, 'postroom-relay'])
def Z1_library_exports_only_public_names(library):
    shown = symbols_of('nm', '-D', '--defined-only', path_of(library, 'so'))
    shown = {name for name in shown if not name.startswith('POSTROOM_')}  # the version's own name
    assert 'postroom_enqueue' in shown
    assert not {name for name in shown if not name.startswith('postroom_')}


CPP = r'''
#include <postroom/libpq.h>
#include <postroom/relay.h>
#include <postroom/sqlite.h>

#include <cstdio>

static void publish(void *context, postroom_delivery *const *items, size_t count,
		    postroom_flight *flight)
{
	for (size_t i = 0; i < count && (i == 0 || postroom_flight_may_begin(flight)); i++) {
		std::fprintf(static_cast<FILE *>(context), "%s\n",
			     postroom_delivery_payload(items[i], NULL));
		postroom_delivery_judge(items[i], POSTROOM_DELIVERED, NULL);
	}
}

int main(int, char **argv)
{
	postroom_relay_options options = postroom_relay_options();
	postroom_relay *relay;
	int status;

	options.size = sizeof(options);
	options.url = argv[1];
	options.publish = publish;
	options.context = stdout;
	options.drain = 1;
	status = postroom_relay_open(&options, &relay);
	if (status >= 0)
		status = postroom_relay_run(relay);
	std::fputs(postroom_relay_errmsg(relay), stderr);
	postroom_relay_close(relay);
	return status < 0;
}
'''


@pytest.mark.skipif(not shutil.which('c++'), reason='there is no C++ compiler')
def D2_a_program_in_cpp_embeds_a_relay(postroom, tmp_path):
    postroom.enqueue(payload='{"n": 1}')
    (tmp_path / 'embed.cc').write_text(CPP)
    libraries = os.path.join(BUILD, 'src')
    includes = [ROOT / 'include', output_of('pg_config', '--includedir').strip()]
    subprocess.run(['c++', '-std=c++11', '-Wall', '-Wextra', '-Werror', '-pedantic',
                    *(f'-I{path}' for path in includes), '-o', 'embed', 'embed.cc',
                    f'-L{libraries}', '-lpostroom-relay'], check=True, cwd=tmp_path)
    printed = subprocess.run(['./embed', postroom.db], check=True, cwd=tmp_path, capture_output=True,
                             text=True, env={**os.environ, 'LD_LIBRARY_PATH': libraries})
    assert (printed.stdout, printed.stderr) == ('{"n": 1}\n', '')
    assert postroom.stats()['delivered'] == 1
