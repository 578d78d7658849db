# SPDX-License-Identifier: Apache-2.0
"""Configuration, reload and the end of a server."""
import re
import signal
import threading

from conftest import PATIENCE, wait_until
from serving import Admin, serve

SAMPLE = re.compile(r'[a-z_:][a-z0-9_:]*(\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})? [-+0-9.eE]+(?:Inf|NaN)?(?: # .*)?',
                    re.IGNORECASE)
CONFIG = '''\
sinks: { out: { url: "null:" } }
routes: [ { sink: out } ]
admin: { listen: "127.0.0.1:0", token: "%s", read_token: "${READ}", read_only: %s }
health: { dead: { degraded: 2 }, oldest_age: { unhealthy: never } }
'''


def G1_admin_and_health_are_checked_and_printed(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    file.write_text('''\
sinks: { out: { url: "null:" } }
routes: [ { sink: out } ]
admin: { listen: "127.0.0.1:8025", token: secret-1, show_payloads: admin }
health: { backlog: { degraded: 5 }, oldest_age: { unhealthy: 2h } }
''')
    shown = postroom.ok('relay', '-c', file, '--check').out
    assert 'secret-1' not in shown
    for line in ('admin:', '  listen: "127.0.0.1:8025"', '  show_payloads: admin', '  read_only: false', 'health:',
                 '  backlog:', '    degraded: 5', '    unhealthy: 100000', '  oldest_age:', '    unhealthy: 2h', '  dead:'):
        assert any(given == line or given.startswith(line + '  #') for given in shown.splitlines()), (line, shown)
    again = tmp_path / 'again.yaml'
    again.write_text(shown)
    assert postroom.ok('relay', '-c', again, '--check', '--json').object['health'] == {
        'backlog': {'degraded': 5, 'unhealthy': 100000}, 'oldest_age': {'degraded': '60s', 'unhealthy': '2h'},
        'dead': {'degraded': 1, 'unhealthy': 1000}}
    object = postroom.ok('relay', '-c', file, '--check', '--json', '--admin', '127.0.0.1:1',
                         env={'POSTROOM_HEALTH_DEAD_DEGRADED': '7'}).object
    assert object['admin']['listen'] == '127.0.0.1:1' and object['admin']['token'] == '***'
    assert object['sources']['admin.listen'] == '--admin'
    assert object['sources']['health.dead.degraded'] == '$POSTROOM_HEALTH_DEAD_DEGRADED'


def G1_wrong_admin_and_health_are_refused(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    head = 'sinks: { out: { url: "null:" } }\nroutes: [ { sink: out } ]\n'
    for text, said in (
            ('admin: { listen: "0.0.0.0:8025" }', 'c.yaml:3: admin.listen: 0.0.0.0:8025 is not a loopback address'),
            ('admin: { listen: nowhere }', 'c.yaml:3: admin.listen: "nowhere" is not ADDR:PORT'),
            ('admin: { token: "a b" }', 'c.yaml:3: admin.token: a token consists of'),
            ('admin: { show_payloads: perhaps }', 'c.yaml:3: admin.show_payloads'),
            ('admin: { read_only: perhaps }', 'c.yaml:3: admin.read_only'),
            ('admin: 5', 'c.yaml:3: admin: has to be a map'),
            ('health: { dead: 5 }', 'c.yaml:3: health.dead: has to be a map'),
            ('health: { deed: { degraded: 5 } }', 'c.yaml:3: health.deed: unknown; did you mean dead?'),
            ('health: { dead: { degrade: 5 } }', 'c.yaml:3: health.dead.degrade: unknown; did you mean degraded?'),
            ('health: { dead: { degraded: 5, unhealthy: 4 } }', 'health.dead: degraded is more than unhealthy'),
            ('health: { backlog: { degraded: 0 } }', 'c.yaml:3: health.backlog.degraded takes')):
        file.write_text(head + text + '\n')
        result = postroom('relay', '-c', 'c.yaml', '--check')
        assert result.code == 2 and said in result.err, (text, result)
    file.write_text(head)
    result = postroom('relay', '-c', 'c.yaml', '--check', env={'POSTROOM_ADMIN_TOKN': 'x'})
    assert result.code == 2 and '$POSTROOM_ADMIN_TOKN: unknown; did you mean $POSTROOM_ADMIN_TOKEN?' in result.err


def G1_reload_changes_tokens_and_keeps_the_address(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    file.write_text(CONFIG % ('one', 'false'))
    admin = Admin(postroom.start('relay', '-c', file, env={'READ': 'reader'}), 'one')
    wait_until(lambda: admin('GET', '/api/v1/stats').code == 200)
    file.write_text((CONFIG % ('two', 'true')).replace('127.0.0.1:0', '127.0.0.1:1'))
    admin.process.send_signal(signal.SIGHUP)
    wait_until(lambda: admin('GET', '/api/v1/stats', token='two').code == 200, 'the new token')
    assert admin('GET', '/api/v1/stats', token='one').code == 401
    assert admin('POST', '/api/v1/outbox/retry', {'filter': {}}, token='two').error == 'read_only'
    assert 'settings=admin.listen' in wait_until(lambda: admin.logged('OUTBOX_RELOAD_KEPT'))[0]
    # One that is wrong changes nothing.
    file.write_text(CONFIG % ('t h r e e', 'false'))
    admin.process.send_signal(signal.SIGHUP)
    refused = wait_until(lambda: admin.logged('OUTBOX_RELOAD_REFUSED'))[0]
    assert 'admin.token' in refused and 't h r e e' not in refused
    assert admin('GET', '/api/v1/stats', token='two').code == 200
    admin.stop()


def G1_reload_during_requests_is_safe(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    file.write_text(CONFIG % ('one', 'false'))
    admin = Admin(postroom.start('relay', '-c', file, env={'READ': 'reader'}), 'one')
    over, codes = threading.Event(), set()

    def ask():
        while not over.is_set():
            codes.add(admin('GET', '/api/v1/sinks').code)
            codes.add(admin('GET', '/api/v1/outbox.csv').code)
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(1, 6):
        admin.process.send_signal(signal.SIGHUP)
        wait_until(lambda n=n: len(admin.logged('OUTBOX_RELOADED')) >= n, 'a reload')
    over.set()
    for thread in threads:
        thread.join()
    assert codes <= {200, 503} and 200 in codes
    admin.stop()


def M1_reload_during_scrapes_never_breaks_an_answer(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    file.write_text(CONFIG % ('one', 'false'))
    admin = Admin(postroom.start('relay', '-c', file, env={'READ': 'reader'}), 'one')
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    over, wrong, scrapes = threading.Event(), [], []

    def scrape(accept, end):
        reloads = 0
        while not over.is_set():
            answer = admin('GET', '/metrics', headers={'Accept': accept})
            lines = answer.body.decode().split('\n')
            types = [line.split()[2] for line in lines if line.startswith('# TYPE ')]
            names = [line.rsplit(' ', 1)[0] for line in lines if line and not line.startswith('#')]
            found = [line for line in lines if line.startswith('postroom_config_last_reload_success_timestamp_seconds ')]
            seen = sum(float(line.rsplit(' ', 1)[1]) for line in found)
            if answer.code != 200 or lines[-2:] != end(lines) or len(set(types)) != len(types) or len(set(names)) != len(names) \
                    or not all(SAMPLE.fullmatch(line) for line in lines if line and not line.startswith('#')) or seen < reloads:
                wrong.append(answer)
            reloads = seen
            scrapes.append(len(names))
    threads = [threading.Thread(target=scrape, args=args) for args in (
        ('text/plain', lambda lines: [lines[-2], '']), ('application/openmetrics-text', lambda lines: ['# EOF', '']))]
    for thread in threads:
        thread.start()
    for n in range(1, 9):
        before = len(scrapes)
        admin.process.send_signal(signal.SIGHUP)
        wait_until(lambda n=n: len(admin.logged('OUTBOX_RELOADED')) >= n, 'a reload')
        wait_until(lambda before=before: len(scrapes) > before + 1 or wrong, 'scrapes')
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    assert min(scrapes) > 20
    admin.stop()


def H1_stopping_relay_is_not_ready(postroom, tmp_path):
    postroom.enqueue('t')
    admin = serve(postroom, '--to', 'exec:until [ -e go ]; do sleep 0.05; done', '--shutdown-grace', '20m', '--lease', '1h',
                  '--publish-timeout', '20m')
    wait_until(lambda: any(worker['in_flight'] for worker in admin.get('/api/v1/workers')['items']), 'a worker')
    admin.process.terminate()
    answer = wait_until(lambda: (probe := admin('GET', '/readyz')).code == 503 and probe, 'it not to be ready')
    assert answer.json == {'status': 'unavailable', 'reason': 'the relay is stopping'}
    assert admin('GET', '/livez').code == 200
    (tmp_path / 'go').touch()
    assert admin.process.wait(PATIENCE) == 0


def P1_server_is_off_by_default(postroom, tmp_path):
    file = tmp_path / 'c.yaml'
    file.write_text(CONFIG % ('one', 'false'))
    result = postroom.ok('relay', '-c', file, '--admin', 'none', '--drain', env={'READ': 'reader'})
    assert 'ADMIN_LISTENING' not in result.err
    assert 'ADMIN_LISTENING' not in postroom.ok('relay', '--to', 'null:', '--drain').err


def L1_probes_are_not_logged_at_info(postroom):
    admin = serve(postroom, '--to', 'null:')
    for path in ('/livez', '/readyz', '/healthz', '/metrics', '/api/v1/sinks'):
        admin('GET', path)
    admin.stop()
    assert not admin.logged('OUTBOX_ADMIN_REQUEST')


def L1_refusals_are_logged_but_never_the_token(postroom):
    admin = serve(postroom, '--to', 'null:', env={'POSTROOM_ADMIN_TOKEN': 'right-one'})
    for n in range(50):
        admin('GET', '/api/v1/stats', token=f'guess-{n}')
    lines = wait_until(lambda: admin.logged('OUTBOX_ADMIN_REFUSED'))
    assert 'status=401' in lines[0] and 'route=/api/v1/stats' in lines[0]
    admin.stop()
    assert len(admin.logged('OUTBOX_ADMIN_REFUSED')) < 50
    assert 'guess' not in '\n'.join(admin.lines) and 'right-one' not in '\n'.join(admin.lines)
