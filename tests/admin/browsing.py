# SPDX-License-Identifier: Apache-2.0
"""Chromium, relays with known messages for it, and a proxy, for either database.

The checks are in dashboard_views.mjs and dashboard_actions.mjs.
"""
import datetime
import fcntl
import http.client
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
import uuid

import psycopg2
import pytest

from conftest import PATIENCE, ROOT, wait_until
from servers.launch import free_port
from serving import Admin

HERE = ROOT / 'tests' / 'admin'
BUILD = ROOT / 'build'  # also for other builds: one copy of the npm packages suffices
CHROMIUM = os.environ.get('CHROMIUM') or shutil.which('chromium')
TENANT = '0190a3b0-0000-7000-8000-000000000001'
EXACT = '{"order": 9007199254740993, "price":1.10, "name":"J\\u00f6rg",  "deep":{"list":[]}}'
HOSTILE = ('<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\u202egnp.exe\u2066 '
           '"quoted" \'single\' &amp; \u0634\u0643\u0631\u0627')
TRAFFIC = 60
CONFIG = """
sinks:
  bus: {url: "file:delivered.ndjson"}
  hooks: {url: "http://127.0.0.1:1/hooks"}
routes:
  - {topic: "hooks.*", sink: hooks}
  - {sink: bus}
"""


def new_id(at, n):
    """A UUID of version 7: lists are sorted by it."""
    number = int(at * 1000) << 80 | 7 << 76 | (n & 0xfff) << 64 | 2 << 62 | uuid.uuid4().int & (1 << 62) - 1
    return str(uuid.UUID(int=number))


class Data:
    """Rows for both tables, oldest first, with what the checks must know of them."""

    def __init__(self):
        self.outbox, self.inbox, self.ids, self.started = [], [], {}, time.time()
        self.traffic = self.hooks = 0

    def message(self, topic, status='pending', error=None, age=60, **columns):
        at = self.started - age
        attempts = columns.pop('attempts', 0 if status == 'pending' else 1)
        row = {'id': new_id(at, len(self.outbox)), 'topic': topic, 'payload': '{"n":1}', 'status': status,
               'attempts': attempts, 'claims': attempts, 'last_error': error, 'created_at': at, 'updated_at': at,
               'next_attempt_at': at + (86400 if attempts and status == 'pending' else 0),
               'last_attempt_at': at if attempts else None, 'delivered_at': at if status == 'delivered' else None, **columns}
        self.outbox.append(row)
        return row['id']

    def job(self, handler, id, status='pending', error=None, age=60, **columns):
        at = self.started - age
        attempts = 0 if status == 'pending' else 1
        self.inbox.append({'id': id, 'handler_name': handler, 'topic': 'jobs', 'payload': '{"n":1}', 'status': status,
                           'attempts': attempts, 'claims': 1, 'last_error': error, 'created_at': at, 'updated_at': at,
                           'next_attempt_at': at, 'processed_at': at if status == 'completed' else None, **columns})

    @property
    def counts(self):
        new = self.traffic + self.hooks
        return {'all': len(self.outbox) + new, 'dead': sum(row['status'] == 'dead' for row in self.outbox),
                'lastHour': sum(row['created_at'] > self.started - 3500 for row in self.outbox) + new}

    def write(self, db):
        """Into tables that exist."""
        for table in ('outbox', 'inbox'):
            for row in getattr(self, table):
                if 'postgres' in db:
                    row['state'] = 'scheduled' if row['attempts'] or table == 'inbox' else 'ready'
                else:
                    row['state'] = 'dead' if row['status'] == 'dead' else 'scheduled'
            (write_postgres if 'postgres' in db else write_sqlite)(db, f'postroom_{table}', getattr(self, table))


def statement(table, row, mark):
    return f'INSERT INTO {table} ({", ".join(row)}) VALUES ({", ".join([mark] * len(row))})'


def write_sqlite(db, table, rows):
    import sqlite3
    with sqlite3.connect(db, timeout=PATIENCE) as connection:
        for row in rows:
            row = {name: int(value * 1000000) if isinstance(value, float) else value for name, value in row.items()}
            connection.execute(statement(table, row, '?'), list(row.values()))
    connection.close()


def write_postgres(db, table, rows):
    connection = psycopg2.connect(db)
    with connection, connection.cursor() as cursor:
        for row in rows:
            row = {name: datetime.datetime.fromtimestamp(value, datetime.timezone.utc) if isinstance(value, float) else value
                   for name, value in row.items()}
            cursor.execute(statement(table, row, '%s'), list(row.values()))
    connection.close()


def variety():
    """A little of everything."""
    data = Data()
    for n in range(6):
        data.message('ok.old', 'delivered', age=7206 - n)
    data.ids['delayed'] = data.message('ok.delayed', 'delivered', age=7000, next_attempt_at=data.started - 5000,
                                       delivered_at=data.started - 4999)
    data.message('hooks.late', age=120, next_attempt_at=data.started - 60)
    for n in range(40):
        data.message('ok.sent', 'delivered', age=3000 - n)
    for n in range(130):
        id = data.message('orders.created', 'dead', f'HTTP 422: bad order {4711 + n}', age=1000 - n, attempts=3,
                          key=f'o-{n}')
    data.ids['retried'] = id
    for n in range(3):
        data.message('mail.sent', 'dead', f'exit 1: customer {uuid.uuid4()} has no address', age=500 - n)
    for n in range(2):
        data.message('tenants.changed', 'dead', 'HTTP 400: tenant', age=450, tenant_id=TENANT)
    for n in range(4):
        data.message('invoices.issued', 'dead', 'HTTP 400: invoice', age=400, namespace='billing')
    data.ids['deleted'] = data.message('orders.paid', 'dead', 'HTTP 410: gone', age=300)
    for n in range(5):
        data.message('payments.captured', 'pending', 'HTTP 503: later', age=200, attempts=2)
    data.ids['exact'] = data.message('orders.exact', 'dead', 'HTTP 422: exact', age=100, key='o-exact', payload=EXACT,
                                     headers='{"x-source": "checkout"}')
    for n in range(3):
        data.job('mail', f'evt-{n}', 'dead', f'SMTP 550: mailbox {n} unavailable')
    data.ids['job'] = 'evt-1'
    data.job('import', 'job-1', checkpoint='{"cursor": 9007199254740993, "price":1.10}',
             steps='{"fetch": {"result": "4812 rows", "at": "2026-11-16T14:02:44.309367Z"}}')
    for n in range(4):
        data.job('rewards', f'done-{n}', 'completed')
    data.traffic, data.hooks = TRAFFIC, 2
    return data


def hostile():
    """HTML, scripts, direction marks and long values in every column that takes text."""
    data = Data()
    everywhere = {'key': HOSTILE, 'correlation_id': HOSTILE[:80], 'content_type': HOSTILE[:80],
                  'headers': json.dumps({'<b>name</b>': HOSTILE, 'javascript:alert(1)': 'javascript:alert(1)'}),
                  'payload': json.dumps({'html': HOSTILE, 'pad': '</pre><script>window.hacked=3</script>' * 27600})}
    data.message(HOSTILE, 'dead', HOSTILE + 'x' * 100000, namespace=HOSTILE, dedupe_key=HOSTILE, **everywhere)
    data.job(f'<i>{HOSTILE[:80]}/..', f'../{HOSTILE[:80]}/?#%2f', 'dead', HOSTILE + 'x' * 100000,
             steps=json.dumps({'<u>step</u>': {'result': HOSTILE, 'at': '2026-11-16T14:02:44.309367Z'}}),
             checkpoint=json.dumps({'x': HOSTILE}), **everywhere)
    return data


def dead_letters(count):
    data = Data()
    for n in range(count):
        data.message('bulk.retried', 'dead', f'HTTP 500: broken {n}')
    return data


def many_causes():
    data = Data()
    for n in range(101):
        data.message(f'shop-{n}.orders', 'dead', 'HTTP 500: broken')
    return data


class Relay:
    """A relay with an admin server. It can be stopped, and started on the same port again."""

    def __init__(self, postroom):
        self.postroom, self.admin, self.settings, self.port = postroom, None, {}, free_port()

    def start(self, data=None, **settings):
        """settings: of admin, as in read_only='yes'."""
        self.settings = {f'POSTROOM_ADMIN_{name.upper()}': value for name, value in settings.items()}
        self.postroom('migrate')
        with open(os.path.join(self.postroom.cwd, 'postroom.yaml'), 'w', encoding='utf-8') as file:
            file.write(CONFIG)
        if data:
            data.write(self.postroom.db)
        self.resume()
        if data and data.traffic:
            self.enqueue(data.traffic, 'live.order')
            self.enqueue(data.hooks, 'hooks.sent')
            wait_until(lambda: self.sink('bus')['delivered'] == data.traffic, 'the traffic')
            wait_until(lambda: self.sink('hooks')['breaker'] != 'closed', 'the breaker')
        return self

    def sink(self, name):
        return next(item for item in self.admin.get('/api/v1/sinks', token=self.settings.get('POSTROOM_ADMIN_TOKEN'))['items']
                    if item['name'] == name)

    def enqueue(self, count, topic):
        lines = [json.dumps({'topic': topic, 'payload': {'n': n}}) for n in range(count)]
        self.postroom.ok('enqueue', '--ndjson', '-', input='\n'.join(lines))

    def resume(self):
        self.admin = Admin(self.postroom.start('relay', '--config', 'postroom.yaml', '--admin', f'127.0.0.1:{self.port}',
                                               env=self.settings))
        self.port = self.admin.port
        wait_until(lambda: self.admin('GET', '/readyz').code == 200, 'the relay to be ready')

    def stop(self):
        self.admin.process.kill()
        self.admin.process.wait()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}/'


class Proxy(http.server.ThreadingHTTPServer):
    """Serves a relay under a path, as a reverse proxy does."""
    daemon_threads = True
    PATH = '/ops/postroom/'

    def __init__(self, relay):
        super().__init__(('127.0.0.1', 0), ProxyHandler)
        self.relay = relay
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_address[1]}{self.PATH}'


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    def forward(self):
        if not self.path.startswith(Proxy.PATH):
            self.send_error(404)
            return
        connection = http.client.HTTPConnection('127.0.0.1', self.server.relay.port)
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        connection.request(self.command, self.path[len(Proxy.PATH) - 1:], body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ('connection', 'transfer-encoding', 'content-length', 'date', 'server'):
                self.send_header(name, value)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = do_DELETE = forward

    def log_message(self, *_args):
        pass


class Browser:
    def __init__(self, home):
        self.process = subprocess.Popen(['node', HERE / 'dashboard.mjs', home, BUILD / 'screenshots'], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.read() == {'ready': True}

    def read(self):
        line = self.process.stdout.readline()
        assert line, 'the browser has ended'
        return json.loads(line)

    def write(self, message):
        self.process.stdin.write(json.dumps(message) + '\n')
        self.process.stdin.flush()

    def check(self, name, server, data=None, **details):
        if data:
            details = {'ids': data.ids, 'counts': data.counts, **details}
        self.write({'check': name, 'base': server.url, **details})
        while True:
            answer = self.read()
            if 'ask' not in answer:
                break
            {'stop': lambda _: server.stop(), 'start': lambda _: server.resume(),
             'enqueue': lambda asked: server.enqueue(asked['count'], asked['topic'])}[answer['ask']](answer)
            self.write({})
        assert 'error' not in answer, answer['error']

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


def install(home):
    """The packages that drive the browser, once. Several runs may want them at the same time."""
    home.mkdir(parents=True, exist_ok=True)
    with open(home / 'lock', 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / 'node_modules' / 'axe-core').exists():
            return
        done = subprocess.run(['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=1', '--ignore-scripts',
                               '--prefix', home, 'playwright-core@1', 'axe-core@4'], timeout=300, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            pytest.skip('npm cannot install playwright-core: ' + done.stderr[:300])


@pytest.fixture(scope='session')
def browser():
    """Chromium, driven by playwright-core."""
    if not CHROMIUM or not shutil.which('npm') or not shutil.which('node'):
        pytest.skip('chromium or npm is missing')
    install(BUILD / 'browser')
    browser = Browser(BUILD / 'browser')
    yield browser
    browser.end()


@pytest.fixture
def relay_page(postroom):
    return Relay(postroom)
