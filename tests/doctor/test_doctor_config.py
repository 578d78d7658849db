# SPDX-License-Identifier: Apache-2.0
"""postroom doctor --config-only: what a configuration has wrong, without a database and without a sink."""
import subprocess

import pytest

from doctor.examining import findings, is_quiet, only

GOOD = '''
sinks:
  bus: { url: "redis://localhost:1/{topic}" }
  rest: { url: "null:" }
routes:
  - { topic: "orders.*", sink: bus }
  - { topic: "*", sink: rest }
'''


@pytest.fixture
def config(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / 'postroom.yaml'
        path.write_text(text)
        path.chmod(mode)
        return '-c', path
    return write


@pytest.fixture
def check(postroom, config):
    """check(TEXT, 'routes', 'warning') checks that there is this finding, and no other."""
    def run(text, name, level, mode=0o600):
        return only(postroom, name, level, '--config-only', *config(text, mode))
    return run


def U2_correct_configuration_is_quiet_and_nothing_is_opened(postroom, config, db):
    is_quiet(postroom, '--config-only', *config(GOOD))
    assert not db.exists()


def U2_fault_is_a_problem(check):
    found = check(GOOD + 'relay: { lese: 30s }\n', 'configuration', 'problem')
    assert 'relay.lese: unknown' in found['title']


def U2_every_fault_is_a_finding(postroom, config):
    found = findings(postroom, '--config-only', *config(GOOD + 'relay: { lese: 30s, batch_size: many }\nx: 1\n'))
    assert [one['check'] for one in found] == ['configuration'] * 3


def U2_missing_file_is_a_problem(postroom, tmp_path):
    only(postroom, 'configuration', 'problem', '--config-only', '-c', tmp_path / 'none.yaml')


def U2_lease_shorter_than_publish_timeout_is_a_problem(check):
    check(GOOD + 'relay: { lease: 5s, publish_timeout: 6s }\n', 'configuration', 'problem')


@pytest.mark.parametrize('first, second', [
    ('{ topic: "*", sink: rest }', '{ topic: "orders.*", sink: bus }'),
    ('{ sink: rest }', '{ namespace: n, topic: "a", sink: bus }'),
    ('{ topic: "orders.*", sink: rest }', '{ topic: "orders.*.new", sink: bus }'),
    ('{ topic: "a", sink: rest }', '{ namespace: n, topic: "a", sink: bus }')])
def U2_route_that_never_matches_is_found(check, first, second):
    sinks = GOOD[:GOOD.index('routes:')]
    assert 'Route 2' in check(f'{sinks}routes:\n  - {first}\n  - {second}\n', 'routes', 'warning')['title']


@pytest.mark.parametrize('first, second', [
    ('{ topic: "orders.*", sink: rest }', '{ topic: "*", sink: bus }'),
    ('{ namespace: n, topic: "*", sink: rest }', '{ topic: "a", sink: bus }'),
    ('{ topic: "*.new", sink: rest }', '{ topic: "orders.*", sink: bus }')])
def U2_route_that_can_match_is_not_blamed(postroom, config, first, second):
    sinks = GOOD[:GOOD.index('routes:')]
    is_quiet(postroom, '--config-only', *config(f'{sinks}routes:\n  - {first}\n  - {second}\n'))


def U2_sink_without_route_is_found(check):
    text = GOOD.replace('  rest:', '  spare: { url: "null:" }\n  rest:')
    assert '"spare"' in check(text, 'unused-sinks', 'warning')['title']


def U2_secret_that_everybody_can_read_is_found(postroom, config, check):
    text = GOOD.replace('redis://localhost', 'redis://:geheim@localhost')
    found = check(text, 'secrets', 'warning', mode=0o644)
    assert 'geheim' not in str(found)
    subprocess.run(found['command'], shell=True, check=True)
    assert findings(postroom, '--config-only', '-c', f'{postroom.cwd}/postroom.yaml') == []
    is_quiet(postroom, '--config-only', *config(text, 0o640))


def U2_configuration_that_everybody_can_change_is_found(postroom, check):
    """A sink can run a command."""
    found = check(GOOD, 'secrets', 'warning', mode=0o602)
    assert 'can change' in found['title']
    subprocess.run(found['command'], shell=True, check=True)
    is_quiet(postroom, '--config-only', '-c', f'{postroom.cwd}/postroom.yaml')


def U2_secret_from_the_environment_is_not_in_the_file(postroom, config):
    text = GOOD.replace('redis://localhost', 'redis://:${PASSWORD}@localhost')
    is_quiet(postroom, '--config-only', *config(text, 0o644), env={'PASSWORD': 'geheim'})


TOKEN = '0123456789abcdef' * 2


def U2_public_admin_server_without_token_is_a_problem(check):
    assert 'token' in check(GOOD + 'admin: { listen: "0.0.0.0:8025" }\n', 'configuration', 'problem')['title']


def U2_public_admin_server_is_noted(postroom, config, check):
    check(f'{GOOD}admin: {{ listen: "0.0.0.0:8025", token: {TOKEN} }}\n', 'admin', 'note')
    is_quiet(postroom, '--config-only', *config(f'{GOOD}admin: {{ listen: "127.0.0.1:8025", token: {TOKEN} }}\n'))


def U2_short_admin_token_is_found(postroom, config, check):
    text = GOOD + 'admin: { listen: "127.0.0.1:8025", token: "${TOKEN}" }\n'
    found = only(postroom, 'admin', 'warning', '--config-only', *config(text), env={'TOKEN': 'geheim'})
    assert 'geheim' not in str(found)
    token = subprocess.run(found['command'], shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    is_quiet(postroom, '--config-only', *config(text), env={'TOKEN': token})


def U2_admin_token_that_everybody_can_read_is_found(postroom, config, check):
    text = f'{GOOD}admin: {{ listen: "127.0.0.1:8025", token: {TOKEN} }}\n'
    found = check(text, 'secrets', 'warning', mode=0o644)
    subprocess.run(found['command'], shell=True, check=True)
    is_quiet(postroom, '--config-only', '-c', f'{postroom.cwd}/postroom.yaml')


def U2_unknown_admin_setting_is_a_problem(check):
    check(GOOD + 'admin: { tokn: x }\n', 'configuration', 'problem')


def U2_unrouted_messages_are_found(postroom, config, sql):
    postroom.ok('migrate')
    postroom.enqueue('invoices')
    only_orders = config('sinks: { out: { url: "null:" } }\nroutes: [ { topic: "orders", sink: out } ]\n')
    found = only(postroom, 'unrouted', 'warning', *only_orders)
    assert '"invoices"' in found['detail']
    is_quiet(postroom, *config('sinks: { out: { url: "null:" } }\nroutes: [ { topic: "*", sink: out } ]\n'))


def test_fix_and_config_only_exclude_each_other(postroom):
    assert 'exclude' in postroom.fails(2, 'doctor', '--fix', '--config-only')
