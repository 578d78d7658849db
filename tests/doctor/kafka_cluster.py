# SPDX-License-Identifier: Apache-2.0
"""A Kafka cluster with three replicas of a topic as a client sees it: metadata and settings, but no log.

librdkafka's mock cluster has neither replicas of a topic on several brokers nor settings of topics.
"""
import contextlib
import socketserver
import struct
import threading

METADATA, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS, SASL_AUTHENTICATE = 3, 17, 18, 22, 32, 36
PRODUCE = 0
NOT_AUTHORIZED, WRONG_PASSWORD = 29, 58


def text(value):
    return struct.pack('>h', len(value)) + value.encode()


def array(items):
    return struct.pack('>i', len(items)) + b''.join(items)


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError, struct.error):
            while True:
                request = self.rfile.read(struct.unpack('>i', self.rfile.read(4))[0])
                key, _, number = struct.unpack_from('>hhi', request)
                self.request_bytes = request
                reply = struct.pack('>i', number) + getattr(self, f'reply_{key}')()
                self.wfile.write(struct.pack('>i', len(reply)) + reply)

    def reply_18(self):
        known = ((PRODUCE, 7), (METADATA, 1), (SASL_HANDSHAKE, 1), (API_VERSIONS, 3), (INIT_PRODUCER_ID, 1), (DESCRIBE_CONFIGS, 0),
                 (SASL_AUTHENTICATE, 0))
        return struct.pack('>hB', 0, len(known) + 1) + b''.join(struct.pack('>hhhB', key, 0, last, 0) for key, last in known) + \
            struct.pack('>iB', 0, 0)

    def reply_3(self):
        port = self.server.server_address[1]
        # The library would take three brokers with one address for one that changes its number.
        brokers = [struct.pack('>i', 1) + text('127.0.0.1') + struct.pack('>ih', port, -1)]
        replicas = array([struct.pack('>i', node) for node in (1, 2, 3)])
        partition = struct.pack('>hii', 0, 0, 1) + replicas + replicas
        topics = [struct.pack('>h', self.server.error) + text('orders') + struct.pack('>?', False) + array([partition])]
        return array(brokers) + struct.pack('>i', 1) + array(topics)

    def reply_17(self):
        return struct.pack('>h', 0) + array([text('PLAIN')])

    def reply_36(self):
        right = b'\0app\0right' in self.request_bytes
        return struct.pack('>h', 0 if right else WRONG_PASSWORD) + text('' if right else 'refused') + struct.pack('>i', 0)

    def reply_22(self):
        return struct.pack('>ihqh', 0, 0, 1, 0)

    def reply_32(self):
        allowed = self.server.replicas is not None
        entries = [text(name) + text(value) + struct.pack('>???', False, False, False)
                   for name, value in (('cleanup.policy', 'delete'), ('min.insync.replicas', str(self.server.replicas)))]
        return struct.pack('>i', 0) + array([struct.pack('>hh', 0 if allowed else NOT_AUTHORIZED, -1) + struct.pack('>b', 2) +
                                             text('orders') + array(entries if allowed else [])])


class Cluster(socketserver.ThreadingTCPServer):
    """replicas: min.insync.replicas of the topic "orders"; None: the client may not read it."""
    daemon_threads = True
    block_on_close = False
    replicas = 2
    error = 0  # of the topic


@contextlib.contextmanager
def kafka_cluster():
    with Cluster(('127.0.0.1', 0), Connection) as cluster:
        threading.Thread(target=cluster.serve_forever, daemon=True).start()
        try:
            yield cluster
        finally:
            cluster.shutdown()
