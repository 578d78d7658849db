# SPDX-License-Identifier: Apache-2.0
"""The relay and a NATS server that comes and goes, and the ways to be let in."""
import base64
import json
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from conftest import wait_until
from servers.launch import Nats


def openssl(*args, text=b''):
    return subprocess.run(['openssl', *args], check=True, input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


@pytest.fixture
def begin(postroom, tmp_path):
    """Starts a server; all of them end with the test."""
    if 'nats' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without nats')
    servers = []

    def start(*args, **settings):
        servers.append(Nats(tmp_path, *args, **settings))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def K7_enqueued_message_is_in_the_stream(postroom, begin):
    nats = begin()
    nats.add_stream('ORDERS', 'orders')
    ids = [postroom.enqueue('orders', '{"n":%d}' % n, '--key', 'k') for n in range(20)]
    postroom.ok('relay', '--to', f'nats://localhost:{nats.port}', '--drain')
    assert nats.ids('ORDERS') == ids


def D5_server_restart_uses_no_attempt_and_loses_no_message(postroom, begin):
    nats = begin()
    nats.add_stream('ORDERS', 's.>')
    relay = postroom.start('relay', '--to', f'nats://127.0.0.1:{nats.port}/s.{{topic}}')
    ids = [postroom.enqueue('orders', '{}', '--key', 'k')]
    wait_until(lambda: postroom.show(ids[0])['status'] == 'delivered', 'the first delivery')
    nats.end()
    ids += [postroom.enqueue('orders', '{}', '--key', 'k') for _ in range(5)]
    while b'OUTBOX_SINK_UNREACHABLE' not in relay.stderr.readline():
        assert relay.poll() is None
    nats.start()
    wait_until(lambda: {row['status'] for row in postroom.rows()} == {'delivered'}, 'all deliveries')
    assert {row['attempts'] for row in postroom.rows()} == {1}
    assert nats.ids('ORDERS') == ids
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0


def K7_missing_stream_makes_no_dead_letter(postroom, begin):
    nats = begin()
    relay = postroom.start('relay', '--to', f'nats://127.0.0.1:{nats.port}', '--max-attempts', '1')
    id = postroom.enqueue('orders')
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert relay.poll() is None
    assert b'nats stream add' in line
    wait_until(lambda: postroom.show(id)['status'] == 'pending', 'the message to be released')
    assert postroom.show(id)['attempts'] == 0
    nats.add_stream('ORDERS', 'orders')
    wait_until(lambda: postroom.show(id)['status'] == 'delivered', 'the delivery')
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0


def D4_relay_stops_while_its_server_hangs(postroom, begin):
    nats = begin()
    nats.add_stream('ORDERS', 'orders')
    relay = postroom.start('relay', '--to', f'nats://127.0.0.1:{nats.port}', '--shutdown-grace', '300ms')
    first = postroom.enqueue('orders')
    wait_until(lambda: postroom.show(first)['status'] == 'delivered', 'the first delivery')
    nats.process.send_signal(signal.SIGSTOP)
    id = postroom.enqueue('orders')
    wait_until(lambda: postroom.show(id)['status'] == 'processing', 'the claim')
    relay.send_signal(signal.SIGTERM)
    assert relay.wait() == 0
    assert postroom.show(id)['status'] == 'pending'


def deliver(postroom, nats, user='', settings=''):
    nats.add_stream('ORDERS', 'orders')
    id = postroom.enqueue('orders')
    result = postroom.ok('relay', '--to', f'nats://{user}localhost:{nats.port}/?{settings}', '--drain')
    assert nats.ids('ORDERS') == [id]
    return result


def refused(postroom, url, secret=None):
    """What the log says of the first outage."""
    postroom.enqueue('orders')
    relay = postroom.start('relay', '--to', url, '--log-level', 'debug')
    line = b''
    while b'OUTBOX_SINK_UNREACHABLE' not in line:
        line = relay.stderr.readline()
        assert relay.poll() is None and not (secret and secret in line)
    relay.send_signal(signal.SIGTERM)
    assert not (secret and secret in relay.stderr.read())
    return line.decode()


def K7_token_authenticates_and_is_never_shown(postroom, begin):
    nats = begin('authorization { token: "let-me-in" }', login=lambda info: {'auth_token': 'let-me-in'})
    assert 'let-me-in' not in deliver(postroom, nats, 'let-me-in@').err
    line = refused(postroom, f'nats://hidden-word@localhost:{nats.port}/orders', b'hidden-word')
    assert 'refuses the login' in line


def begin_tls(begin, path):
    """A server that wants to see a certificate of the same authority's."""
    for name in ('ca', 'other'):
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', f'/CN={name}',
                '-addext', 'keyUsage=critical,keyCertSign', '-days', '2', '-keyout', path(f'{name}.key'),
                '-out', path(f'{name}.pem'))
    for name, subject in (('server', 'DNS:localhost'), ('client', 'DNS:client')):
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', f'/CN={name}',
                '-keyout', path(f'{name}.key'), '-out', path(f'{name}.csr'))
        openssl('x509', '-req', '-in', path(f'{name}.csr'), '-CA', path('ca.pem'), '-CAkey', path('ca.key'), '-CAcreateserial',
                '-days', '2', '-extfile', '/dev/stdin', '-out', path(f'{name}.pem'),
                text=f'subjectAltName={subject}\nauthorityKeyIdentifier=keyid\n'.encode())
    tls = ssl.create_default_context(cafile=path('ca.pem'))
    tls.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
    tls.load_cert_chain(path('client.pem'), path('client.key'))
    return begin(f'tls {{ cert_file: "{path("server.pem")}", key_file: "{path("server.key")}", '
                 f'ca_file: "{path("ca.pem")}", verify: true }}', tls=tls)


def K7_tls_authenticates_both_sides(postroom, begin, tmp_path):
    def path(name):
        return str(tmp_path / name)

    nats = begin_tls(begin, path)
    ours = f'cert={path("client.pem")}&key={path("client.key")}'
    deliver(postroom, nats, settings=f'ca={path("ca.pem")}&{ours}')
    for host, settings, why in (('localhost', f'ca={path("other.pem")}&{ours}', 'certificate'),
                                ('127.0.0.1', f'ca={path("ca.pem")}&{ours}', 'mismatch'),
                                ('localhost', f'ca={path("ca.pem")}', 'cannot connect')):
        assert why in refused(postroom, f'nats://{host}:{nats.port}/orders?{settings}')
    assert len(nats.ids('ORDERS')) == 1


def K7_configured_authority_is_trusted_beside_the_system_authorities(postroom, begin, tmp_path):
    def path(name):
        return str(tmp_path / name)

    nats = begin_tls(begin, path)
    nats.add_stream('ORDERS', 'orders')
    url = f'nats://localhost:{nats.port}/?ca={path("other.pem")}&cert={path("client.pem")}&key={path("client.key")}'
    id = postroom.enqueue('orders')
    postroom.ok('relay', '--to', url, '--drain', env={'SSL_CERT_FILE': path('ca.pem')})
    assert nats.ids('ORDERS') == [id]


def D4_relay_stops_while_its_server_hangs_in_a_handshake(postroom, begin, tmp_path):
    nats = begin_tls(begin, lambda name: str(tmp_path / name))
    open_wires = []

    def pass_on_the_greeting(listener):
        while listener.fileno() >= 0:
            try:
                wire, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(('localhost', nats.port))
            open_wires.extend((wire, server))
            wire.sendall(server.recv(65536))

    with socket.create_server(('127.0.0.1', 0)) as listener:
        threading.Thread(target=pass_on_the_greeting, args=(listener,), daemon=True).start()
        postroom.enqueue('orders')
        relay = postroom.start('relay', '--to', f'nats://127.0.0.1:{listener.getsockname()[1]}', '--publish-timeout', '200ms')
        while b'in time' not in relay.stderr.readline():
            assert relay.poll() is None
        relay.send_signal(signal.SIGTERM)
        assert relay.wait() == 0


def K7_requested_tls_is_required(postroom, begin):
    nats = begin()
    assert 'cannot connect' in refused(postroom, f'nats://localhost:{nats.port}/orders?tls=true')


class Key:
    """An nkey: Ed25519, in the letters that NATS writes it with."""

    PREFIXES = {'O': 14 << 3, 'A': 0, 'U': 20 << 3}

    def __init__(self, kind, path):
        self.path, prefix = str(path), self.PREFIXES[kind]
        openssl('genpkey', '-algorithm', 'ed25519', '-out', self.path)
        seed = openssl('pkey', '-in', self.path, '-outform', 'DER')[-32:]
        public = openssl('pkey', '-in', self.path, '-pubout', '-outform', 'DER')[-32:]
        self.public = self.encode(bytes([prefix]) + public)
        self.seed = self.encode(bytes([18 << 3 | prefix >> 5, (prefix & 31) << 3]) + seed)

    @staticmethod
    def encode(raw):
        crc = 0
        for byte in raw:
            crc ^= byte << 8
            for _ in range(8):
                crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
        return base64.b32encode(raw + crc.to_bytes(2, 'little')).decode().rstrip('=')

    def sign(self, text):
        with open(self.path + '.text', 'wb') as file:
            file.write(text)
        return unpadded(openssl('pkeyutl', '-sign', '-rawin', '-inkey', self.path, '-in', self.path + '.text'))

    def token(self, subject, name, **claims):
        """A JWT with these claims, signed by this key."""
        parts = ({'typ': 'JWT', 'alg': 'ed25519-nkey'},
                 {'jti': name, 'iat': 1700000000, 'iss': self.public, 'sub': subject.public, 'name': name,
                  'nats': {'version': 2, **claims}})
        text = '.'.join(unpadded(json.dumps(part).encode()) for part in parts)
        return f'{text}.{self.sign(text.encode())}'


def unpadded(data):
    return base64.urlsafe_b64encode(data).decode().rstrip('=')


def K7_nkey_authenticates(postroom, begin, tmp_path):
    user = Key('U', tmp_path / 'user.pem')
    other = Key('U', tmp_path / 'other.pem')
    (tmp_path / 'seed').write_text(user.seed + '\n')
    (tmp_path / 'wrong').write_text(other.seed + '\n')
    nats = begin(f'authorization {{ users: [ {{ nkey: {user.public} }} ] }}',
                 login=lambda info: {'nkey': user.public, 'sig': user.sign(info['nonce'].encode())})
    deliver(postroom, nats, settings=f'nkey={user.public}&seed={tmp_path}/seed')
    line = refused(postroom, f'nats://localhost:{nats.port}/orders?nkey={user.public}&seed={tmp_path}/wrong',
                   other.seed.encode())
    assert 'refuses the login' in line


def K7_credentials_file_authenticates(postroom, begin, tmp_path):
    operator = Key('O', tmp_path / 'operator.pem')
    system, account = Key('A', tmp_path / 'system.pem'), Key('A', tmp_path / 'account.pem')
    user = Key('U', tmp_path / 'user.pem')
    limits = {name: -1 for name in ('subs', 'data', 'payload', 'imports', 'exports', 'conn', 'leaf', 'mem_storage',
                                    'disk_storage', 'streams', 'consumer')}
    stateless = {**limits, 'mem_storage': 0, 'disk_storage': 0, 'streams': 0, 'consumer': 0}
    accounts = ((system, operator.token(system, 'SYS', type='account', limits=stateless)),
                (account, operator.token(account, 'shop', type='account', limits=limits)))
    token = account.token(user, 'app', type='user', subs=-1, data=-1, payload=-1)
    (tmp_path / 'app.creds').write_text(
        f'-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n'
        f'-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n')
    nats = begin(f'operator: "{operator.token(operator, "op", type="operator")}"\nsystem_account: {system.public}\n'
                 'resolver: MEMORY\nresolver_preload {\n' + ''.join(f'{key.public}: "{text}"\n' for key, text in accounts) + '}',
                 login=lambda info: {'jwt': token, 'sig': user.sign(info['nonce'].encode())})
    deliver(postroom, nats, settings=f'creds={tmp_path}/app.creds')
