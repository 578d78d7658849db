# SPDX-License-Identifier: Apache-2.0
"""The same tests on each database and kind of lease. tools/with-postgres starts a server for them."""
import pytest

from conftest import Postroom, sqlite_runner
from pgsql.conftest import database, place, shared, template  # noqa: F401 -- fixtures


@pytest.fixture(params=['sqlite', 'pgsql-row', 'pgsql-lane'])
def kind(request):
    """The database, and the kind of lease where there are two. `pgsql` is its default."""
    return request.param


@pytest.fixture
def db(kind, request, tmp_path):
    if kind == 'sqlite':
        return tmp_path / 'outbox.db'
    return request.getfixturevalue('place').url(request.getfixturevalue('database'))


@pytest.fixture
def postroom(db, kind, tmp_path):
    program = Postroom(db, tmp_path)
    program.ok('migrate')
    _, _, lease = kind.partition('-')
    if lease:
        program.ok('lease', lease)
    yield program
    program.end()


@pytest.fixture
def sql(db, kind, request):
    """sql('SELECT …') runs one statement on the database, by a connection of its own."""
    if kind == 'sqlite':
        return sqlite_runner(db)
    place, database = request.getfixturevalue('place'), request.getfixturevalue('database')
    return lambda statement, *parameters: place.sql(database, statement, *parameters)
