# SPDX-License-Identifier: Apache-2.0
"""Behind PgBouncer in transaction mode everything works by the URL alone: no session state is kept."""
import os
import shutil
import signal
import subprocess

import pytest

from conftest import wait_until
from sink_files import messages_in
from pgsql.server import Place, as_server_user, directory_for_server

TOOL = shutil.which('pgbouncer', path=os.environ['PATH'] + ':/usr/sbin')


class Bouncer(Place):
    def __init__(self, server, *settings):
        super().__init__(directory_for_server())
        prefix, _ = as_server_user()
        with open(f'{self.host}/users', 'w', encoding='utf-8') as file:
            file.write('"postgres" ""\n"app" ""\n')
        with open(f'{self.host}/ini', 'w', encoding='utf-8') as file:
            file.write(f'[databases]\n* = host={server.host}\n[pgbouncer]\nlisten_port = 6432\n'
                       f'unix_socket_dir = {self.host}\nauth_type = trust\nauth_file = {self.host}/users\n'
                       'pool_mode = transaction\ndefault_pool_size = 2\n' + ''.join(f'{line}\n' for line in settings))
        with open(f'{self.host}/log', 'wb') as log:
            self.process = subprocess.Popen(
                [*prefix, 'setpriv', '--pdeathsig=KILL', TOOL, f'{self.host}/ini'],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def url(self, *args, **settings):
        return super().url(*args, port=6432, **settings)

    def renew_sessions(self):
        """No later client is given a session of before. A session that the server ends is given away until the pooler has read
        of its end; a session that the pooler ends is not. Needs `admin_users = postgres`."""
        self.sql('pgbouncer', 'RECONNECT', port=6432)

    def remove(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.host)


@pytest.fixture
def bouncer(server, unmigrated, database):
    """The program sees the server through it, and all that the server does is in its log."""
    if not TOOL:
        pytest.skip('pgbouncer is not installed')
    server.configure(log_statement='all')
    bouncer = Bouncer(server, 'admin_users = postgres')
    unmigrated.db = bouncer.url(database)
    wait_until(lambda: unmigrated('migrate').code == 0, 'the pooler to start')
    yield bouncer
    bouncer.remove()


def kept(server):
    """What is kept in sessions, by the server's log."""
    words = ['execute postroom_', 'LISTEN ', 'pg_advisory_lock(', 'SET SESSION']
    return [word for word in words if word in server.log()]


def D5_every_command_works_through_a_pooler(bouncer, server, postroom, sql, tmp_path):
    id = postroom.enqueue('t', '{"n": 0}', '--dedupe-key', 'd')
    assert postroom.ok('enqueue', 't', '{}', '--dedupe-key', 'd', '--json').object['duplicate']
    (tmp_path / 'many').write_text(''.join('{"topic":"t","payload":{"n":%d}}\n' % n
                                           for n in range(1, 500)))
    postroom.ok('enqueue', '--ndjson', tmp_path / 'many', '--atomic')
    assert postroom.stats()['pending'] == 500
    result = postroom.ok('relay', '--drain', '--to', 'file:out', '--batch-size', '20', '--workers', '4',
                         '--log-level', 'warn')
    assert result.err == ''
    assert sorted(m['payload']['n'] for m in messages_in(tmp_path / 'out')) == list(range(500))
    assert postroom.stats()['delivered'] == 500
    assert postroom.show(id)['status'] == 'delivered'
    postroom.enqueue('bad', '{}')
    postroom.ok('relay', '--drain', '--to', 'exec:exit 65')
    assert len(postroom.rows('--status', 'dead')) == 1
    postroom.ok('retry', '--dead')
    postroom.ok('relay', '--drain', '--to', 'null:')
    postroom.ok('purge', '--status', 'delivered', '--yes')
    assert postroom.stats()['delivered'] == 0
    assert kept(server) == []


@pytest.mark.parametrize('kind', ['row', 'lane'])
def D3_relays_that_share_a_pool_do_not_disturb_each_other(bouncer, server, postroom, relay, tmp_path, kind):
    """Three relays with nine sessions on two of the server's; without notifications they poll."""
    postroom.ok('lease', kind)
    relays = [relay('--to', 'file:out', '--batch-size', '10', '--log-level', 'warn') for _ in range(3)]
    for n in range(30):
        postroom.enqueue('t', str(n))
    wait_until(lambda: postroom.stats()['delivered'] == 30, 'all to be delivered')
    for running in relays:
        running.stop()
        assert running.log == ''
    assert sorted(m['payload'] for m in messages_in(tmp_path / 'out')) == list(range(30))
    assert kept(server) == []


def D5_relay_survives_restart_of_its_pooler(bouncer, server, postroom, relay, database, tmp_path):
    running = relay('--to', 'file:out')
    postroom.enqueue()
    wait_until(lambda: len(messages_in(tmp_path / 'out')) == 1, 'the first message')
    bouncer.process.send_signal(signal.SIGKILL)
    bouncer.process.wait()
    running.wait_for('OUTBOX_STORE_TROUBLE', 3)
    os.unlink(f'{bouncer.host}/.s.PGSQL.6432')
    prefix, _ = as_server_user()
    bouncer.process = subprocess.Popen([*prefix, TOOL, '-q', f'{bouncer.host}/ini'],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
    server.sql(database, "INSERT INTO postroom_outbox (topic, payload) VALUES ('t', '1')")
    wait_until(lambda: len(messages_in(tmp_path / 'out')) == 2, 'the second message')
    running.stop()


def D3_without_pooler_statements_are_prepared_and_notify_works(server, postroom, relay, tmp_path):
    """What the tests above find missing is there otherwise."""
    server.configure(log_statement='all')
    wait_until(lambda: server.sql('postgres', 'SHOW log_statement') == [('all',)], 'the setting')
    running = relay('--to', 'file:out')
    postroom.enqueue()
    wait_until(lambda: messages_in(tmp_path / 'out'), 'the message')
    wait_until(lambda: set(kept(server)) == {'execute postroom_', 'LISTEN '}, 'both in the log')
    running.stop()
