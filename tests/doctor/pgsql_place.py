# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL server of the doctor's tests."""
import os

import pytest

from doctor.examining import statements
from pgsql.server import Server, binaries, run_as_server

NOW = ('--patience', '1ms')


@pytest.fixture(scope='module')
def place(template):
    """A server as it should be; the shared one of the tests has fsync off."""
    server = Server(template)
    server.configure(fsync='on', wal_level='logical', max_prepared_transactions=5)
    run_as_server(os.path.join(binaries(), 'pg_checksums'), '--enable', '--no-sync', '-D', server.data)
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def mend(place, database):
    """Runs the SQL that a finding advises."""
    def run(finding):
        for statement in statements(finding['command']):
            place.sql(database, statement)
    return run


@pytest.fixture
def session(place, database):
    """Opens sessions in which one can wait; all end with the test."""
    opened = []

    def start(*words, name=database, **options):
        connection = place.connect(name, **options)
        opened.append(connection)
        with connection.cursor() as cursor:
            for statement in words:
                cursor.execute(statement)
        return connection

    yield start
    for connection in opened:
        connection.close()
