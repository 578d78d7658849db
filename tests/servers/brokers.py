# SPDX-License-Identifier: Apache-2.0
"""Every kind of broker, with the URLs of a sink and a source that share its topic, "orders"."""
import pytest

from servers.launch import Nats, RabbitMQ, Redis
from servers.test_kafka import Kafka


class Broker:
    consumers = 2

    def make_room(self):
        pass

    def describe(self):
        """Its state, for the report of a failure."""
        return ''

    def restart(self):
        self.server.end()
        self.server.start()

    def end(self):
        self.server.close()


class OnRedis(Broker):
    def __init__(self, directory):
        self.server = Redis(directory)
        self.server.start()
        self.sink = self.source = f'redis://127.0.0.1:{self.server.port}/orders'


class OnNats(Broker):
    def __init__(self, directory):
        self.server = Nats(directory)
        self.server.start()
        # The server must not remove duplicates.
        self.server.add_stream('SHOP', 'orders', duplicate_window=100_000_000)
        self.sink = f'nats://127.0.0.1:{self.server.port}/orders'
        self.source = f'nats://127.0.0.1:{self.server.port}/SHOP'

    def describe(self):
        return f"{self.server.ask('$JS.API.STREAM.INFO.SHOP')}\n{self.server.ask('$JS.API.CONSUMER.LIST.SHOP')}"


class OnRabbitMQ(Broker):
    def __init__(self, directory):
        self.server = RabbitMQ(directory)
        self.server.start()
        self.server.queue('orders')
        self.sink = self.server.url + '/%2F/?routing_key=orders'
        self.source = self.server.url + '/%2F/orders'


class OnKafka(Broker):
    # The mock's own assertion ends it when members come back in the middle of a rebalance.
    consumers = 1

    def __init__(self, directory):
        self.server = Kafka(directory)
        self.server.start()
        self.sink = self.source = f'kafka://127.0.0.1:{self.server.port}/orders?kafka.topic.metadata.refresh.interval.ms=500'

    def make_room(self):
        """A partition keeps the newest 5 MB: a topic of many keeps all that a test writes."""
        self.server.control('partitions orders 128')


BROKERS = {'redis': OnRedis, 'nats': OnNats, 'amqp': OnRabbitMQ, 'kafka': OnKafka}


def start_broker(name, postroom, directory):
    """In a directory of its own below this one; the test ends it."""
    if name not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip(f'built without {name}')
    directory = directory / 'broker'
    directory.mkdir()
    return BROKERS[name](directory)
