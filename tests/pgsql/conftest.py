# SPDX-License-Identifier: Apache-2.0
"""Every test has a database of its own: on the server of $POSTROOM_TEST_PG, or, when it asks for
`server`, on a private one that it may stop, kill and reconfigure. tools/with-postgres sets the
variable; without it a private server serves the whole run.
"""
import os
import shutil
import uuid

import pytest

from conftest import Postroom, wait_until
from pgsql.server import Server, make_template, shared_place

# Variables that with-postgres and users set for psql must not reach the program under test.
for name in [name for name in os.environ if name.startswith('PG') and name != 'PG_BIN']:
    del os.environ[name]


@pytest.fixture(scope='session')
def template():
    path = make_template()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope='session')
def shared(request):
    place = shared_place()
    if place:
        yield place
        return
    server = Server(request.getfixturevalue('template')).start()
    yield server
    server.remove()


@pytest.fixture
def server(template):
    server = Server(template)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def place(request):
    return request.getfixturevalue('server' if 'server' in request.fixturenames else 'shared')


@pytest.fixture
def database(place):
    name = f'test_{uuid.uuid4().hex}'
    place.sql('postgres', f'CREATE DATABASE {name}')
    yield name
    # A private server goes with all its databases.
    if not isinstance(place, Server):
        place.sql('postgres', f'DROP DATABASE {name} WITH (FORCE)')


@pytest.fixture
def db(place, database):
    """The URL of the test's database, which has no tables yet."""
    return place.url(database)


@pytest.fixture
def unmigrated(db, tmp_path):
    program = Postroom(db, tmp_path)
    yield program
    program.end()


@pytest.fixture
def postroom(unmigrated):
    unmigrated.ok('migrate')
    return unmigrated


@pytest.fixture(params=['row', 'lane'])
def leased(request, postroom):
    """The program on a database with this kind of lease."""
    postroom.ok('lease', request.param)
    return postroom


@pytest.fixture
def sql(place, database):
    """sql('SELECT …') runs one statement on the database, by a connection of its own."""
    return lambda statement, *parameters: place.sql(database, statement, *parameters)


class Relay:
    """A relay in the background, with its log in a file that can be read at any time."""

    def __init__(self, postroom, number, args, env):
        self.path = os.path.join(postroom.cwd, f'relay{number}.log')
        with open(self.path, 'wb') as log:
            self.process = postroom.start('relay', *args, env=env, stdout=log, stderr=log)

    @property
    def log(self):
        with open(self.path, encoding='utf-8', errors='replace') as log:
            return log.read()

    def wait_for(self, text, times=1):
        def there():
            assert self.process.poll() is None or self.log.count(text) >= times, self.log
            return self.log.count(text) >= times
        wait_until(there, f'{times} times "{text}" in the log')

    def stop(self):
        assert self.process.poll() is None, self.log
        self.process.terminate()
        assert self.process.wait() == 0, self.log


@pytest.fixture
def relay(postroom):
    """relay('--to', …) starts one; at the end all that still run must stop well."""
    started = []

    def start(*args, env=None):
        started.append(Relay(postroom, len(started), args, env))
        return started[-1]

    yield start
    for relay in started:
        if relay.process.poll() is None:
            relay.process.kill()
