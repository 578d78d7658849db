# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

from conftest import wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'admin'))

from api_cases import *  # noqa: E402,F401,F403 -- the tests, with PostgreSQL
from serving import Admin, serve  # noqa: E402


def H1_probes_survive_a_database_outage(postroom, server):
    admin = serve(postroom, '--to', 'null:')
    server.stop()
    wait_until(lambda: admin('GET', '/readyz').code == 503, 'the relay not to be ready')
    assert admin('GET', '/livez').code == 200
    for path in ('/api/v1/stats', '/api/v1/outbox', '/api/v1/outbox.csv'):
        answer = admin('GET', path)
        assert answer.code == 503 and answer.error == 'database_unavailable', answer
    wait_until(lambda: admin('GET', '/healthz').code == 503, 'the relay to be unhealthy')
    assert admin('GET', '/metrics').code == 200
    server.start()
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    wait_until(lambda: admin('GET', '/api/v1/stats').code == 200, 'the statistics')
    admin.stop()


def H1_relay_is_live_before_the_database_is_reachable(postroom, server):
    server.stop()
    admin = Admin(postroom.start('relay', '--to', 'null:', '--admin', '127.0.0.1:0'))
    assert admin('GET', '/livez').code == 200
    assert admin('GET', '/readyz').code == 503
    server.start()
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    admin.stop()
