#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts the servers that tests and benchmarks use: real ones, each on a free port and in a
directory of its own. They end with the process that started them.

launch.py redis COMMAND… runs a command beside a server, whose port is in $PORT."""
import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

HOST = '127.0.0.1'
PATIENCE = 300 if os.environ.get('POSTROOM_SOAK') == '1' else 120
RABBITMQ = '/usr/lib/rabbitmq/bin/rabbitmq-server'  # the one in the path asks for root

reserved = []  # held until the process ends


def reserve(port):
    """False: another process of the tests has reserved it. servers/server.c uses the same names."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f'\0postroom-test-port-{port}')
    except OSError:
        claim.close()
        return False
    reserved.append(claim)
    return True


def free_port():
    """A port below those that the system gives to clients, so that none of them takes it between two starts."""
    first = 11000 + os.getpid() * 13 % 20000
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            if reserve(port):
                return port
    raise RuntimeError('no free port')


class Server:
    """Subclasses define command() and answers(). Helpers are processes that survive a restart."""
    programs = ()
    environment = None

    def __init__(self, directory):
        self.directory, self.port = str(directory), free_port()
        self.process, self.helpers = None, []
        path = os.environ['PATH'] + ':/usr/sbin'
        for program in self.programs:
            found = subprocess.run(['which', program], env={'PATH': path}, check=False, stdout=subprocess.DEVNULL)
            assert found.returncode == 0, f'{program} is missing; run "tools/install test"'

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def spawn(self, *command):
        return subprocess.Popen(
            ['setpriv', '--pdeathsig=KILL', *(str(word) for word in command)], cwd=self.directory,
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def processes(self):
        return [*self.helpers, self.process] if self.process else self.helpers

    def check_running(self):
        for process in self.processes():
            if process.poll() is not None:
                raise RuntimeError(f'{process.args[2]} has ended with {process.returncode}')

    def wait(self, is_ready):
        deadline = time.monotonic() + PATIENCE
        while not is_ready():
            self.check_running()
            if time.monotonic() > deadline:
                raise RuntimeError(f'{type(self).__name__} does not answer')
            time.sleep(0.02)

    def start(self, *settings):
        self.process = self.spawn(*self.command(*settings))
        self.wait(self.answers)

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def close(self):
        """Ends everything that still runs."""
        for process in self.processes():
            process.kill()
            process.wait()


class Redis(Server):
    """Writes every command to disk before it acknowledges it."""
    programs = ('redis-server', 'redis-cli')

    def __init__(self, directory):
        super().__init__(directory)
        self.path = os.path.join(self.directory, 'redis.sock')

    def command(self, *settings):
        return ('redis-server', '--port', self.port, '--bind', HOST, '--unixsocket', self.path, '--dir',
                self.directory, '--appendonly', 'yes', '--appendfsync', 'always', '--save', '', *settings)

    def answers(self):
        return self.ask('PING') == 'PONG'

    def ask(self, *command):
        done = subprocess.run(['redis-cli', '-s', self.path, '--json', *command], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            return json.loads(done.stdout) if done.returncode == 0 else None
        except ValueError:  # errors while it loads are not JSON
            return None

    def ids(self, stream):
        """The ids of the entries in their order, with duplicates."""
        return [dict(zip(fields[::2], fields[1::2]))['id'] for _, fields in self.ask('XRANGE', stream, '-', '+')]


class Nats(Server):
    """With JetStream. login maps the server's INFO to additional fields of CONNECT."""
    programs = ('nats-server',)

    def __init__(self, directory, settings='', login=lambda info: {}, tls=None):
        super().__init__(directory)
        self.login, self.tls = login, tls
        self.configuration = self.write(
            'nats.conf', f'listen: "{HOST}:{self.port}"\njetstream {{ store_dir: "{self.directory}/js" }}\n{settings}')

    def command(self):
        return 'nats-server', '-c', self.configuration, '-l', os.path.join(self.directory, 'nats.log')

    def answers(self):
        try:
            return 'error' not in self.ask('$JS.API.INFO')
        except ssl.SSLCertVerificationError:  # waiting does not change a certificate
            raise
        except (ConnectionError, ssl.SSLError):
            return False

    def ask(self, subject, **question):
        """One request, on a connection of its own."""
        with socket.create_connection(('localhost', self.port)) as plain:
            greeting = plain.makefile('rb', buffering=0).readline()
            if not greeting.startswith(b'INFO '):  # it is starting or stopping
                raise ConnectionError(greeting)
            info = json.loads(greeting.split(b' ', 1)[1])
            wire = self.tls.wrap_socket(plain, server_hostname='localhost') if self.tls else plain
            hello = {'verbose': False, 'pedantic': False, 'headers': True, 'no_responders': True,
                     'lang': 'test', 'version': '1', **self.login(info)}
            body = json.dumps(question).encode()
            wire.sendall(b'CONNECT %s\r\nSUB answer 1\r\nPUB %s answer %d\r\n%s\r\n' % (
                json.dumps(hello).encode(), subject.encode(), len(body), body))
            reader = wire.makefile('rb')
            for line in reader:
                words = line.split()
                if words[0] == b'MSG':
                    return json.loads(reader.read(int(words[-1])))
                if words[0] in (b'HMSG', b'-ERR'):
                    raise ConnectionError(line)
            raise ConnectionError('closed')

    def add_stream(self, name, *subjects, **settings):
        answer = self.ask(f'$JS.API.STREAM.CREATE.{name}', name=name, subjects=subjects, storage='file', **settings)
        assert 'error' not in answer, answer

    def ids(self, stream):
        """The ids of the messages in their order."""
        found = []
        last = self.ask(f'$JS.API.STREAM.INFO.{stream}')['state']['last_seq']
        for seq in range(1, last + 1):
            message = self.ask(f'$JS.API.STREAM.MSG.GET.{stream}', seq=seq)['message']
            headers = base64.b64decode(message['hdrs']).decode().split('\r\n')
            found += [line.split(': ')[1] for line in headers if line.startswith('Nats-Msg-Id:')]
        return found


class Kafka(Server):
    """librdkafka's mock cluster. The helper keeps the log in memory, the newest few megabytes of each
    partition; the process is the broker that clients see (see kafka_broker.c)."""
    programs = ('kcat',)

    def __init__(self, directory, build):
        super().__init__(directory)
        self.broker = os.path.join(build, 'tests', 'kafka-broker')
        self.helpers.append(self.spawn(self.broker, 'keep'))
        self.wait(lambda: os.path.exists(os.path.join(self.directory, 'kept')))
        self.write('advertised', str(self.port))

    def command(self):
        return self.broker, 'front', self.port

    def answers(self):
        return self.kcat('-L').returncode == 0

    def kcat(self, *arguments):
        return subprocess.run(['kcat', '-b', f'{HOST}:{self.port}', *arguments], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def control(self, request):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(os.path.join(self.directory, 'control'))
            control.sendall(request.encode())
            assert control.recv(2) == b'ok'

    def records(self, topic):
        """In the order of their partitions."""
        done = self.kcat('-C', '-q', '-e', '-J', '-o', 'beginning', '-t', topic)
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    def ids(self, topic):
        return [record['headers'][record['headers'].index('ce_id') + 1] for record in self.records(topic)]


class RabbitMQ(Server):
    """As installed, without plugins. erlang: arguments of its virtual machine."""
    programs = (RABBITMQ, 'epmd')

    def __init__(self, directory, erlang='+S 1:1 +sbwt none'):
        super().__init__(directory)
        nodes, names = free_port(), free_port()
        self.write('plugins', '[].\n')
        self.write('rabbitmq.conf', 'log.console = false\n')
        self.environment = {
            **os.environ, 'HOME': self.directory, 'detached': '1', 'ERL_EPMD_PORT': str(names),
            'ERL_EPMD_ADDRESS': HOST, 'RABBITMQ_NODENAME': f'postroom{nodes}@localhost',
            'RABBITMQ_NODE_IP_ADDRESS': HOST, 'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_DIST_PORT': str(nodes), 'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': erlang,
            **{f'RABBITMQ_{name}': os.path.join(self.directory, value) for name, value in (
                ('MNESIA_BASE', 'db'), ('LOG_BASE', 'log'), ('CONFIG_FILE', 'rabbitmq'),
                ('ENABLED_PLUGINS_FILE', 'plugins'), ('FEATURE_FLAGS_FILE', 'feature_flags'),
                ('PID_FILE', 'pid'))}}
        self.helpers.append(self.spawn('epmd', '-port', names))
        self.url = f'amqp://guest:guest@{HOST}:{self.port}'

    def command(self):
        return (RABBITMQ,)

    def answers(self):
        return self.tool('declare-queue', '--durable', '--queue', 'ready').returncode == 0

    def tool(self, name, *arguments):
        """Runs a program of amqp-tools."""
        return subprocess.run([f'amqp-{name}', '--url', self.url + '/%2F', *arguments], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def queue(self, name):
        """Creates a durable and empty queue."""
        self.tool('delete-queue', '--queue', name)
        assert self.tool('declare-queue', '--durable', '--queue', name).returncode == 0
        return name

    def bodies(self, name):
        """Removes all messages from the queue and returns their bodies."""
        found = []
        while (got := self.tool('get', '--queue', name)).returncode == 0:
            found.append(got.stdout.decode())
        return found


def main(kind, *command):
    with tempfile.TemporaryDirectory(prefix='postroom-launch.') as directory:
        server = {'redis': Redis, 'nats': Nats, 'amqp': RabbitMQ}[kind](directory)
        try:
            server.start()
            return subprocess.call(command, env={**os.environ, 'PORT': str(server.port)})
        finally:
            server.close()


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
