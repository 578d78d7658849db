# SPDX-License-Identifier: Apache-2.0
"""The program without shared libraries: make static."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import PATIENCE, ROOT, sanitized, wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
STATIC = os.environ.get('POSTROOM_STATIC')  # built by an earlier make static
pytestmark = [pytest.mark.skipif(not SOAK and not STATIC, reason='a whole build: make soak'),
              pytest.mark.skipif(sanitized(), reason='the static program has a build of its own'),
              pytest.mark.skipif(os.geteuid() != 0, reason='only root can enter an empty root')]
HTTP = '''
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open('received', 'ab').write(self.rfile.read(int(self.headers['Content-Length'])) + b'\\n')
        self.send_response(204)
        self.end_headers()
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
open('port', 'w').write(str(server.server_port))
server.serve_forever()
'''


@pytest.fixture(scope='module')
def program(tmp_path_factory):
    if STATIC:
        return pathlib.Path(STATIC)
    for command in (['tools/install', 'build', 'static'], ['tools/static', tmp_path_factory.mktemp('static') / 'build']):
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')
        assert done.returncode == 0, done.stdout[-3000:]
    path, size = done.stdout.split()[-3:-1]
    assert int(size) == pathlib.Path(path.rstrip(':')).stat().st_size
    return pathlib.Path(path.rstrip(':'))


class Empty:
    """A root that contains the program only."""

    def __init__(self, directory, program):
        self.root = directory
        shutil.copy(program, directory / 'postroom')

    def command(self, *args):
        return ['/usr/sbin/chroot', str(self.root), '/postroom', *map(str, args)]

    def __call__(self, *args, env=None):
        return subprocess.run(self.command(*args), check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, encoding='utf-8', env=env or {'POSTROOM_DB': '/shop.db'})

    def ok(self, *args, **options):
        done = self(*args, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def empty(program, tmp_path):
    directory = tmp_path / 'empty'
    directory.mkdir()
    return Empty(directory, program)


def W1_static_program_needs_no_library(program):
    listed = subprocess.run(['readelf', '--dynamic', '--program-headers', '--wide', program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert '(NEEDED)' not in listed and 'INTERP' not in listed
    assert '(FLAGS_1)' in listed and 'PIE' in listed


def W1_bill_of_materials_of_the_static_program_names_every_library(program):
    document = json.loads(program.with_name('postroom-static.cdx.json').read_text())
    names = {component['name'] for component in document['components']}
    linked = set(re.findall(r'\s-l(\w+)', (ROOT / 'tools' / 'static').read_text())) - {'m', 'dl', 'pthread'}
    own = {'pq': 'libpq', 'pgcommon': 'libpq', 'pgport': 'libpq', 'sqlite3': 'sqlite', 'ssl': 'openssl', 'crypto': 'openssl',
           'brotlidec': 'brotli', 'brotlicommon': 'brotli', 'z': 'zlib'}
    assert {'glibc'} | {own.get(name, name if name in names else f'lib{name}') for name in linked} == names
    assert document['dependencies'][0]['dependsOn'] == [component['bom-ref'] for component in document['components']]


def W1_static_program_relays_in_an_empty_root(empty):
    empty.ok('enqueue', 'orders', '{"n": 1}', '--key', 'a')
    empty.ok('relay', '--drain', '--to', 'file:/events.ndjson')
    assert json.loads((empty.root / 'events.ndjson').read_text())['payload'] == {'n': 1}
    assert json.loads(empty.ok('stats', '--json'))['delivered'] == 1
    assert {path.name for path in empty.root.iterdir() if not path.name.startswith('shop.db')} == {'postroom', 'events.ndjson'}


def W1_static_program_has_the_sinks_that_allow_it(empty):
    version = json.loads(empty.ok('--version', '--json'))
    assert version['sinks'] == ['null', 'stdout', 'file', 'exec', 'http', 'kafka', 'redis', 'amqp']
    done = empty('relay', '--to', 'nats://localhost/orders')
    assert done.returncode == 2 and 'nats' in done.stderr, done.stderr


def W1_static_program_sends_http_by_name_and_serves_health(empty, tmp_path):
    (empty.root / 'etc').mkdir()
    (empty.root / 'etc' / 'hosts').write_text('127.0.0.1 receiver.example\n')
    server = subprocess.Popen(['/usr/bin/python3', '-c', HTTP], cwd=tmp_path, stderr=subprocess.DEVNULL)
    relay = None
    try:
        port = wait_until(lambda: (tmp_path / 'port').exists() and (tmp_path / 'port').read_text(), 'the receiver')
        empty.ok('enqueue', 'orders', '{"n": 2}')
        empty.ok('relay', '--drain', '--to', f'http://receiver.example:{port}/')
        assert '"n"' in (tmp_path / 'received').read_text()
        with (tmp_path / 'log').open('wb') as log:
            relay = subprocess.Popen(empty.command('relay', '--admin', '127.0.0.1:0', '--to', 'null:'), env={'POSTROOM_DB': '/shop.db'},
                                     stderr=log)
        found = wait_until(lambda: re.search(r'OUTBOX_ADMIN_LISTENING address=(\S+) ', (tmp_path / 'log').read_text()), 'the admin server')
        wait_until(lambda: empty('health', f'http://{found[1]}').returncode == 0, 'the relay to be healthy')
        relay.terminate()
        assert relay.wait(PATIENCE) == 0
    finally:
        for process in filter(None, (server, relay)):
            process.kill()
            process.wait()


@pytest.mark.parametrize('url', ['redis://127.0.0.1:1/orders', 'amqp://127.0.0.1:1/orders', 'kafka://127.0.0.1:1/orders'])
def W1_broker_sinks_of_the_static_program_report_an_outage(empty, url, tmp_path):
    """They start, try to connect, and stop: no stub of a missing library ends the program."""
    empty.ok('enqueue', 'orders', '{"n": 3}')
    log = tmp_path / 'log'
    with log.open('wb') as file:
        relay = subprocess.Popen(empty.command('relay', '--to', url), env={'POSTROOM_DB': '/shop.db'}, stderr=file)
    try:
        wait_until(lambda: 'OUTBOX_SINK_UNREACHABLE' in log.read_text() or relay.poll() is not None, 'the outage')
        relay.terminate()
        assert relay.wait(PATIENCE) == 0, log.read_text()
    finally:
        relay.kill()
        relay.wait()


def W1_static_program_relays_from_postgres(program, tmp_path):
    """Not in an empty root, because the socket of the server is outside of it."""
    script = ('export POSTROOM_DB="$POSTROOM_TEST_PG"; "$1" migrate && "$1" enqueue orders 4 && '
              '"$1" relay --drain --to "file:$2"')
    done = subprocess.run(['tools/with-postgres', 'sh', '-c', script, 'sh', program, tmp_path / 'events.ndjson'], cwd=ROOT,
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding='utf-8')
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / 'events.ndjson').read_text())['payload'] == 4
