# SPDX-License-Identifier: Apache-2.0
"""The servers that sinks are measured against: tests/servers/launch.py, with a count of the received messages.

count() returns that number, empty() deletes the messages."""
import os
import subprocess
import sys
import urllib.request

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'servers'))

import launch  # noqa: E402
from launch import HOST  # noqa: E402


class Measured:
    def pids(self):
        """The processes that do the work."""
        return [process.pid for process in self.processes()]

    def empty(self):
        pass


class Redis(Measured, launch.Redis):
    def start(self):
        super().start('--appendfsync', 'everysec', '--proto-max-bulk-len', 1 << 20)
        self.url = f'redis://{HOST}:{self.port}/{{topic}}'

    def count(self):
        return self.ask('XLEN', 'bench.orders')

    def empty(self):
        self.ask('FLUSHALL')


class Nats(Measured, launch.Nats):
    def start(self):
        super().start()
        self.add_stream('BENCH', 'bench.>')
        self.url = f'nats://{HOST}:{self.port}/{{topic}}'

    def count(self):
        return self.ask('$JS.API.STREAM.INFO.BENCH')['state']['messages']

    def empty(self):
        self.ask('$JS.API.STREAM.PURGE.BENCH')


class Kafka(Measured, launch.Kafka):
    def start(self):
        super().start()
        self.url = f'kafka://{HOST}:{self.port}'

    def count(self):
        """The sum of the ends of all partitions."""
        listing = self.kcat('-Q', *(word for n in range(4) for word in ('-t', f'bench.orders:{n}:-1')))
        return sum(int(line.split()[-1]) for line in listing.stdout.decode().splitlines())


class RabbitMQ(Measured, launch.RabbitMQ):
    """The queue is a quorum queue, as docs/sinks/amqp.md recommends."""

    def __init__(self, directory, build):
        super().__init__(directory, erlang='')
        self.bare = os.path.join(build, 'bench', 'bare_amqp')

    def answers(self):
        return self.renew().returncode == 0

    def renew(self):
        return subprocess.run([self.bare, str(self.port), 'bench.orders'], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)

    def count(self):
        """Deleting the queue returns the number of messages in it."""
        return int(self.renew().stdout)

    def empty(self):
        self.count()


class Nginx(Measured, launch.Server):
    programs = ('nginx',)

    def command(self):
        conf = self.write('nginx.conf', f'daemon off; pid {self.directory}/pid; worker_processes 1; '
                          'events { worker_connections 256; } http { access_log off; '
                          'keepalive_requests 100000000; server { '
                          f'listen {HOST}:{self.port}; location / {{ return 204; }} '
                          'location /poison { return 444; } location /status { stub_status; } } }\n')
        self.environment = {**os.environ, 'PATH': os.environ['PATH'] + ':/usr/sbin'}
        self.url = f'http://{HOST}:{self.port}/'
        return 'nginx', '-p', self.directory, '-e', os.path.join(self.directory, 'log'), '-c', conf

    def answers(self):
        try:
            return self.count() > 0
        except OSError:
            return False

    def count(self):
        with urllib.request.urlopen(self.url + 'status') as answer:
            return int(answer.read().split()[9])

    def pids(self):
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='ascii') as file:
            return [int(word) for word in file.read().split()]

    def close(self):
        self.process.terminate()  # a killed master would leave its workers
        self.process.wait()
