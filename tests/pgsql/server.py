# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL servers for tests: the one that is shared, and private ones that may be maltreated."""
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import urllib.parse

import psycopg2

from conftest import wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'


def binaries():
    """Where the server's programs are: $PG_BIN, or the newest of Debian's."""
    found = sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda path: int(path.split('/')[4]))
    return os.environ.get('PG_BIN') or (found[-1] if found else '')


def as_server_user():
    """PostgreSQL refuses to run as root: what to put before its commands, and whose files they want."""
    if os.geteuid() != 0:
        return [], None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get('postgres') or names['nobody']
    return ['setpriv', f'--reuid={user.pw_uid}', f'--regid={user.pw_gid}', '--clear-groups'], user


def run_as_server(*command, **options):
    prefix, _ = as_server_user()
    return subprocess.run([*prefix, *map(str, command)], check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def directory_for_server():
    """A new directory that the server may use, with a path short enough for a socket."""
    path = tempfile.mkdtemp(prefix='postroom-pg.')
    _, user = as_server_user()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)
    return path


def make_template():
    """A fresh cluster, to be copied: initdb takes longer than a copy."""
    path = directory_for_server()
    run_as_server(os.path.join(binaries(), 'initdb'), '-D', f'{path}/data', '-U', 'postgres', '-A',
                  'trust', '-E', 'UTF8', '--locale=C.UTF-8', '--no-sync', cwd=path)
    return path


class Place:
    """Where a server is: hosts are the directories of its sockets."""

    def __init__(self, host, user='postgres'):
        self.host, self.user = host, user

    def url(self, database='postgres', user=None, password=None, host=None, **settings):
        name = urllib.parse.quote(user or self.user, safe='')
        if password is not None:
            name += ':' + urllib.parse.quote(password, safe='')
        query = urllib.parse.urlencode({'host': host or self.host, **settings}, safe='/,')
        return f'postgres://{name}@/{database}?{query}'

    def connect(self, database='postgres', user=None, **options):
        """A psycopg2 connection; its transactions are one statement each."""
        connection = psycopg2.connect(dbname=database, user=user or self.user, host=self.host,
                                      application_name='test', **options)
        connection.autocommit = True
        return connection

    def sql(self, database, statement, *parameters, **options):
        connection = self.connect(database, **options)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters or None)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def backends(self, database):
        """The process ids of the program's sessions there."""
        return [pid for pid, in self.sql('postgres', (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'postroom' AND datname = %s"),
            database)]

    def terminate(self, database):
        """Ends the program's sessions there, and says whose they were."""
        pids = self.backends(database)
        for pid in pids:
            self.sql('postgres', 'SELECT pg_terminate_backend(%s)', pid)
        return pids


def shared_place():
    """The server of $POSTROOM_TEST_PG, or None."""
    url = os.environ.get('POSTROOM_TEST_PG')
    if not url:
        return None
    parts = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(parts.query))
    return Place(query.get('host') or parts.hostname, parts.username or 'postgres')


class Server(Place):
    """A server of the test's own, on a copy of a cluster, as an unprivileged user."""

    def __init__(self, template=None):
        super().__init__(directory_for_server())
        self.data, self.process = f'{self.host}/data', None
        if template:
            subprocess.run(['cp', '-a', f'{template}/data', self.data], check=True)
            # A killed server leaves its files in the page cache: no fsync needed.
            self.configure(listen_addresses="''", unix_socket_directories=f"'{self.host}'",
                           max_connections=100, fsync='off', autovacuum_naptime='1s')

    def configure(self, **settings):
        with open(f'{self.data}/postgresql.conf', 'a', encoding='utf-8') as file:
            for name, value in settings.items():
                file.write(f'{name} = {value}\n')
        self.reload()

    def reload(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGHUP)

    def demand_password(self, role):
        """From now on, of this role only."""
        path = f'{self.data}/pg_hba.conf'
        with open(path, encoding='utf-8') as file:
            rules = file.read()
        with open(path, 'w', encoding='utf-8') as file:
            file.write(f'local all {role} scram-sha-256\n{rules}')
        self.reload()

    def answers(self):
        try:
            self.connect().close()
            return True
        except psycopg2.OperationalError:
            return False

    def launch(self):
        prefix, _ = as_server_user()
        with open(f'{self.host}/log', 'ab') as log:
            # The server ends when the tests end.
            self.process = subprocess.Popen(
                [*prefix, 'setpriv', '--pdeathsig=QUIT', os.path.join(binaries(), 'postgres'), '-D',
                 self.data], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        """Until it answers. The remains of a killed one may keep it from starting for a moment."""
        def up():
            if not self.process or self.process.poll() is not None:
                self.launch()
            return self.answers()
        wait_until(up, f'the server to start: {self.log()[-1000:]}')
        return self

    def log(self):
        try:
            with open(f'{self.host}/log', encoding='utf-8', errors='replace') as log:
                return log.read()
        except FileNotFoundError:
            return ''

    def stop(self, number=signal.SIGINT):
        """SIGINT is a fast shutdown, SIGQUIT an immediate one; SIGKILL leaves the backends orphaned."""
        self.process.send_signal(number)
        self.process.wait()

    def crash(self):
        """As if its machine had lost power: all its processes at the same time."""
        os.kill(self.process.pid, signal.SIGSTOP)
        children = self.children()
        for pid in children:
            signal_if_there(pid, signal.SIGSTOP)
        for pid in [self.process.pid, *children]:
            signal_if_there(pid, signal.SIGKILL)
        self.process.wait()

    def children(self):
        found = []
        for name in os.listdir('/proc'):
            try:
                with open(f'/proc/{name}/stat', encoding='utf-8') as stat:
                    parent = int(stat.read().rpartition(')')[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == self.process.pid:
                found.append(int(name))
        return found

    def remove(self):
        if self.process and self.process.poll() is None:
            signal_if_there(self.process.pid, signal.SIGCONT)
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.host, ignore_errors=True)


def signal_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
