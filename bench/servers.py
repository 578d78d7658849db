# SPDX-License-Identifier: Apache-2.0
"""The servers that sinks are measured against: real ones, on ports of their own, gone with the process."""
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

HOST = '127.0.0.1'
RABBITMQ = '/usr/lib/rabbitmq/bin/rabbitmq-server'  # the one in the path asks for root

given = set()


def free_port():
    """Below the ports that the system gives to clients."""
    first = 11000 + os.getpid() * 13 % 20000
    for port in range(first, first + 1000):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            if port not in given:
                given.add(port)
                return port
    sys.exit('bench: no free port')


def quiet(*command):
    return subprocess.run([str(word) for word in command], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)


class Server:
    """In a directory of its own. count() is the number of messages that have come, empty() forgets them."""
    programs = ()

    def __init__(self, directory):
        self.directory, self.port, self.processes = directory, free_port(), []
        for program in self.programs:
            if not shutil.which(program, path=os.environ['PATH'] + ':/usr/sbin'):
                sys.exit(f'bench: there is no {program}; tools/install test brings it')

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        return path

    def spawn(self, *command, **options):
        self.processes.append(subprocess.Popen(
            ['setpriv', '--pdeathsig=KILL', *(str(word) for word in command)], cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options))

    def wait(self, is_ready):
        while not is_ready():
            if any(process.poll() is not None for process in self.processes):
                sys.exit(f'bench: {self.programs[0]} does not run')
            time.sleep(0.1)

    def pids(self):
        """Those that do the work."""
        return [process.pid for process in self.processes]

    def empty(self):
        pass

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Redis(Server):
    programs = ('redis-server', 'redis-cli')

    def start(self):
        self.spawn('redis-server', '--port', self.port, '--bind', HOST, '--dir', self.directory,
                   '--appendonly', 'yes', '--save', '')
        self.wait(lambda: self.ask('PING') == 'PONG')
        self.url = f'redis://{HOST}:{self.port}/{{topic}}'

    def ask(self, *words):
        return quiet('redis-cli', '-p', self.port, *words).stdout.decode().strip()

    def count(self):
        return int(self.ask('XLEN', 'bench.orders'))

    def empty(self):
        self.ask('FLUSHALL')


class Nats(Server):
    programs = ('nats-server',)

    def start(self):
        conf = self.write('nats.conf', f'listen: "{HOST}:{self.port}"\n'
                          f'jetstream {{ store_dir: "{self.directory}/js" }}\n')
        self.spawn('nats-server', '-c', conf, '-l', os.path.join(self.directory, 'log'))
        self.wait(lambda: self.ask('STREAM.CREATE.BENCH', name='BENCH', subjects=['bench.>'],
                                   storage='file'))
        self.url = f'nats://{HOST}:{self.port}/{{topic}}'

    def ask(self, subject, **question):
        """The answer to one request to JetStream, or None."""
        body = json.dumps(question).encode() if question else b''
        try:
            with socket.create_connection((HOST, self.port)) as wire, wire.makefile('rb') as reader:
                wire.sendall(b'CONNECT {"verbose":false}\r\nSUB answer 1\r\n'
                             b'PUB $JS.API.%s answer %d\r\n%s\r\n' % (subject.encode(), len(body), body))
                for line in reader:
                    if line.startswith(b'MSG'):
                        answer = json.loads(reader.read(int(line.split()[-1])))
                        return None if 'error' in answer else answer
        except ConnectionError:
            pass
        return None

    def count(self):
        return self.ask('STREAM.INFO.BENCH')['state']['messages']

    def empty(self):
        self.ask('STREAM.PURGE.BENCH')


class Kafka(Server):
    """librdkafka's mock cluster: it keeps the newest few megabytes of a partition, in memory."""
    programs = ('kcat',)

    def __init__(self, directory, build):
        super().__init__(directory)
        self.broker = os.path.join(build, 'tests', 'kafka-broker')

    def start(self):
        self.spawn(self.broker, 'keep')
        self.wait(lambda: os.path.exists(os.path.join(self.directory, 'kept')))
        self.write('advertised', str(self.port))
        self.spawn(self.broker, 'front', self.port)
        self.wait(lambda: quiet('kcat', '-L', '-b', f'{HOST}:{self.port}').returncode == 0)
        self.url = f'kafka://{HOST}:{self.port}'

    def count(self):
        """The ends of all partitions together."""
        listing = quiet('kcat', '-Q', '-b', f'{HOST}:{self.port}', *(
            word for n in range(4) for word in ('-t', f'bench.orders:{n}:-1'))).stdout.decode()
        return sum(int(line.split()[-1]) for line in listing.splitlines())


class RabbitMQ(Server):
    """As it is installed, without plugins; the queue is a quorum queue, which docs/sinks/amqp.md advises."""
    programs = (RABBITMQ, 'epmd')

    def __init__(self, directory, build):
        super().__init__(directory)
        self.bare = os.path.join(build, 'bench', 'bare_amqp')

    def start(self):
        nodes, names = free_port(), free_port()
        self.write('plugins', '[].\n')
        self.write('rabbitmq.conf', 'log.console = false\n')
        environment = {
            **os.environ, 'HOME': self.directory, 'detached': '1', 'ERL_EPMD_PORT': str(names),
            'ERL_EPMD_ADDRESS': HOST, 'RABBITMQ_NODENAME': f'bench{nodes}@localhost',
            'RABBITMQ_NODE_IP_ADDRESS': HOST, 'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_DIST_PORT': str(nodes), 'RABBITMQ_CONF_ENV_FILE': '/dev/null',
            **{f'RABBITMQ_{name}': os.path.join(self.directory, value) for name, value in (
                ('MNESIA_BASE', 'db'), ('LOG_BASE', 'log'), ('CONFIG_FILE', 'rabbitmq'),
                ('ENABLED_PLUGINS_FILE', 'plugins'), ('FEATURE_FLAGS_FILE', 'flags'),
                ('PID_FILE', 'pid'))}}
        self.url = f'amqp://guest:guest@{HOST}:{self.port}'
        self.spawn('epmd', '-port', names, env=environment)
        self.spawn(RABBITMQ, env=environment)
        self.wait(lambda: self.renew().returncode == 0)

    def renew(self):
        return quiet(self.bare, self.port, 'bench.orders')

    def count(self):
        """Deleting it tells how many there were."""
        return int(self.renew().stdout)

    def empty(self):
        self.count()


class Nginx(Server):
    programs = ('nginx',)

    def start(self):
        conf = self.write('nginx.conf', f'daemon off; pid {self.directory}/pid; worker_processes 1; '
                          'events { worker_connections 256; } http { access_log off; '
                          'keepalive_requests 100000000; server { '
                          f'listen {HOST}:{self.port}; location / {{ return 204; }} '
                          'location /status { stub_status; } } }\n')
        self.spawn('nginx', '-p', self.directory, '-e', os.path.join(self.directory, 'log'), '-c', conf,
                   env={**os.environ, 'PATH': os.environ['PATH'] + ':/usr/sbin'})
        self.url = f'http://{HOST}:{self.port}/'
        self.wait(self.answers)

    def answers(self):
        try:
            return self.count() > 0
        except OSError:
            return False

    def count(self):
        with urllib.request.urlopen(self.url + 'status') as answer:
            return int(answer.read().split()[9])

    def pids(self):
        [master] = self.processes
        with open(f'/proc/{master.pid}/task/{master.pid}/children', encoding='ascii') as file:
            return [int(word) for word in file.read().split()]

    def end(self):
        [master] = self.processes
        master.terminate()  # its workers would stay otherwise
        master.wait()
