# SPDX-License-Identifier: Apache-2.0
"""The primary dies, the standby is promoted, and all programs continue (D5)."""
import os
import socket

import pytest

from conftest import wait_until
from sink_files import messages_in
from pgsql.ledger import Ledger, balance, drain, relays
from pgsql.server import Server, binaries, run_as_server

TOOL = os.path.join(binaries(), 'pg_basebackup')


@pytest.fixture
def standby(server):
    """Streams from the server; what is committed there is committed here too."""
    if not os.path.exists(TOOL):
        pytest.skip('pg_basebackup is not installed')
    standby = Server()
    try:
        run_as_server(TOOL, '-h', server.host, '-U', 'postgres', '-D', standby.data, '-R', '-X', 'stream',
                      '-c', 'fast', '--no-sync')
        standby.configure(unix_socket_directories=f"'{standby.host}'")
        standby.start()
        server.configure(synchronous_standby_names="'*'")
        wait_until(lambda: server.sql('postgres', 'SELECT sync_state FROM pg_stat_replication') == [
            ('sync',)], 'the standby to be synchronous')
        yield standby
    finally:
        standby.remove()


def both(server, standby, database, **settings):
    return server.url(database, host=f'{server.host},{standby.host}',
                      target_session_attrs='read-write', **settings)


def D5_nothing_committed_is_lost_when_the_standby_takes_over(server, standby, leased, database,
                                                             tmp_path):
    count = 300
    server.sql(database, 'CREATE TABLE business (word text PRIMARY KEY)')
    leased.db = both(server, standby, database)
    ledger = Ledger(leased, 4)
    crowd = relays(leased, 3)
    try:
        wait_until(lambda: len(ledger.words()) >= count, 'the first messages')
        server.crash()
        before = len(ledger.words())
        standby.sql('postgres', 'SELECT pg_promote()')
        wait_until(lambda: len(ledger.words()) >= before + count, 'the producers to go on')
        # The relays are those of the beginning.
        delivered = lambda: standby.sql(database, (
            "SELECT count(*) FROM postroom_messages WHERE status = 'delivered'"))[0][0]
        wait_until(lambda: delivered() >= before + count // 2, 'the relays to go on')
        assert all(member.poll() is None for member in crowd.members)
    finally:
        ledger.crowd.end()
        crowd.end()

    def sql(statement, *parameters):
        return standby.sql(database, statement, *parameters)
    wait_until(lambda: sql("SELECT count(*) FROM pg_stat_activity WHERE application_name IN "
                           "('postroom', 'producer')") == [(0,)], 'all sessions to end')
    drain(leased, sql)
    balance(sql, tmp_path, ledger, len(crowd.members))


def caught_up(server, standby):
    """Whether the standby has replayed all that is written."""
    written = server.sql('postgres', 'SELECT pg_current_wal_lsn()')[0][0]
    return standby.sql('postgres', 'SELECT pg_last_wal_replay_lsn() >= %s', written) == [(True,)]


def D5_relay_skips_a_standby(server, standby, postroom, database, tmp_path):
    wait_until(lambda: caught_up(server, standby), 'the standby to catch up')
    postroom.db = server.url(database, host=f'{standby.host},{server.host}',
                             target_session_attrs='read-write')
    id = postroom.enqueue()
    postroom.ok('relay', '--drain', '--to', 'file:out')
    assert [message['id'] for message in messages_in(tmp_path / 'out')] == [id]
    postroom.db = standby.url(database)
    line = postroom.fails(1, 'enqueue', 't', '1')
    assert 'this is a standby' in line, line
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the standby to show it')


@pytest.mark.parametrize('kind', ['silent', 'full'])
def D5_unresponsive_host_is_skipped(server, postroom, database, tmp_path, kind):
    """Silent: it accepts connections and never answers. Full: its queue accepts no connection."""
    with socket.create_server(('127.0.0.1', 0), backlog=100 if kind == 'silent' else 0) as hung:
        port = hung.getsockname()[1]
        callers = []
        for _ in range(0 if kind == 'silent' else 2):
            callers.append(socket.socket())
            callers[-1].setblocking(False)
            callers[-1].connect_ex(('127.0.0.1', port))
        postroom.db = server.url(database, host=f'127.0.0.1,{server.host}', port=f'{port},5432',
                                 connect_timeout=5)
        id = postroom.enqueue()
        postroom.ok('relay', '--drain', '--to', 'file:out')
        for caller in callers:
            caller.close()
    assert [message['id'] for message in messages_in(tmp_path / 'out')] == [id]
