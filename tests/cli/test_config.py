# SPDX-License-Identifier: Apache-2.0
"""The configuration: file, environment and flags, what is refused, what is printed."""
import json
import os
import re
import subprocess

import pytest
import yaml

from conftest import PROGRAM, ROOT, wait_until

PLAIN = 'sinks: { out: { url: "null:" } }\nroutes: [ { sink: out } ]\n'
FULL = '''\
database: sqlite:shop.db
relay:
  workers: 3
  batch-size: 250
  lease: 40s
  on_dead: block
sinks:
  bus: { url: "file:bus.ndjson", sync: no, concurrency: 7, rate: 90/m }
  hooks: { url: "exec:./deliver $${TOPIC}" }
routes:
  - { topic: "orders.*", sink: bus }
  - { namespace: billing, sink: hooks }
retention: { delivered: 0, dead: 90d, dedupe: never, inbox: 60d }
'''


@pytest.fixture
def check(postroom, tmp_path):
    """check(TEXT, …) writes the file and runs relay --check on it, without a database named elsewhere."""
    def run(text, *args, env=None, code=0):
        path = tmp_path / 'c.yaml'
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        result = postroom('relay', '--check', '-c', 'c.yaml', *args,
                          env={'POSTROOM_DB': '', **(env or {})})
        assert result.code == code, result
        assert (result.out == '') == (code != 0), result
        return result
    return run


@pytest.fixture
def faults(check):
    """The lines that a wrong file is answered with."""
    def run(text, *args, env=None):
        lines = check(text, *args, env=env, code=2).err.splitlines()
        assert all(line.startswith('postroom: ') for line in lines), lines
        return [line.removeprefix('postroom: ') for line in lines]
    return run


def effective(check, text, *args, env=None):
    return json.loads(check(text, '--json', *args, env=env).out)


def G1_file_configures_everything(check):
    shown = effective(check, FULL)
    assert shown['database'] == 'sqlite:shop.db'
    assert shown['relay'] == {
        'namespace': None, 'topic': None, 'tenant': None, 'workers': 3, 'batch_size': 250,
        'lease': '40s', 'poll_interval': '1s', 'max_attempts': 10, 'base_delay': '1s',
        'max_delay': '5m', 'backoff': 'exponential', 'on_dead': 'block',
        'max_error_length': 2000, 'publish_timeout': '10s', 'shutdown_grace': '20s'}
    assert shown['retention'] == {'delivered': '0', 'dead': '90d', 'dedupe': 'never', 'inbox': '60d'}
    assert shown['sinks'] == {
        'bus': {'url': 'file:bus.ndjson', 'concurrency': 7, 'rate': '90/m', 'sync': 'no'},
        'hooks': {'url': 'exec:./deliver ${TOPIC}', 'concurrency': None, 'rate': None}}
    assert shown['routes'] == [{'namespace': None, 'topic': 'orders.*', 'sink': 'bus'},
                               {'namespace': 'billing', 'topic': None, 'sink': 'hooks'}]
    assert shown['sources']['relay.batch_size'] == 'c.yaml:4'
    assert shown['sources']['routes.2.sink'] == 'c.yaml:12'


def G1_environment_overrides_file_and_flags_override_both(check):
    text = PLAIN + 'relay: { workers: 3, batch_size: 30, lease: 31s }\nretention: { delivered: 1d }\n'
    env = {'POSTROOM_RELAY_BATCH_SIZE': '40', 'POSTROOM_RELAY_LEASE': '41s',
           'POSTROOM_RETENTION_DELIVERED': '2d', 'POSTROOM_SINKS_OUT_URL': 'stdout:',
           'POSTROOM_RETENTION_DEDUPE': ''}
    shown = effective(check, text, '--lease', '51s', env=env)
    values = {**shown['relay'], **shown['retention']}
    sources = shown['sources']
    for name, value, path, source in (
            ('workers', 3, 'relay.workers', 'c.yaml:3'),
            ('batch_size', 40, 'relay.batch_size', '$POSTROOM_RELAY_BATCH_SIZE'),
            ('lease', '51s', 'relay.lease', '--lease'),
            ('max_attempts', 10, 'relay.max_attempts', 'default'),
            ('delivered', '2d', 'retention.delivered', '$POSTROOM_RETENTION_DELIVERED'),
            ('dedupe', '30d', 'retention.dedupe', 'default')):
        assert (values[name], sources[path]) == (value, source)
    assert shown['sinks']['out']['url'] == 'stdout:'
    assert sources['sinks.out.url'] == '$POSTROOM_SINKS_OUT_URL'


def G1_the_environment_alone_configures_a_relay_without_a_file(postroom):
    result = postroom.ok('relay', '--check', '--json', '--to', 'null:',
                         env={'POSTROOM_RELAY_WORKERS': '9'})
    assert result.object['relay']['workers'] == 9
    line = postroom.fails(2, 'relay', '--to', 'null:', env={'POSTROOM_RELAY_WORKERS': 'all'})
    assert line.startswith('$POSTROOM_RELAY_WORKERS: relay.workers takes a whole number')


def G1_unknown_variable_is_an_error(postroom, tmp_path):
    def error(*args, **env):
        return postroom.fails(2, 'relay', *args, env=env)
    assert error('--to', 'null:', POSTROOM_RELAY_BATCHSIZE='9') == \
        '$POSTROOM_RELAY_BATCHSIZE: unknown; did you mean $POSTROOM_RELAY_BATCH_SIZE?'
    (tmp_path / 'c.yaml').write_text('sinks: { out: { url: "${POSTROOM_SINKS_OUT_PLACE}" } }\n'
                                     'routes: [ { sink: out } ]\n')
    own = {'POSTROOM_SINKS_OUT_PLACE': 'null:'}
    assert error('-c', 'c.yaml', POSTROOM_SINKS_AUT_URL='null:', **own) == \
        '$POSTROOM_SINKS_AUT_URL: unknown; did you mean $POSTROOM_SINKS_OUT_URL?'
    # Variables that are not read, are empty, or have another prefix are ignored.
    postroom.ok('relay', '--to', 'null:', '--drain', env={'POSTROOM_SINKS_AUT_URL': 'null:', 'POSTROOM_SOAK': '1',
                                                          'POSTROOM_RELAY_BATCHSIZE': ''})
    postroom.ok('relay', '-c', 'c.yaml', '--drain', env=own)


def G1_the_database_comes_from_flag_environment_file_in_this_order(postroom, tmp_path):
    (tmp_path / 'c.yaml').write_text('database: sqlite:file.db\n')
    for args, env, name in (([], {'POSTROOM_DB': ''}, 'file.db'),
                            ([], {'POSTROOM_DB': 'env.db'}, 'env.db'),
                            (['-d', 'flag.db'], {'POSTROOM_DB': 'env.db'}, 'flag.db')):
        postroom.ok('-c', 'c.yaml', 'enqueue', 't', '{}', *args, env=env)
        assert (tmp_path / name).exists()
        (tmp_path / name).unlink()
    postroom.ok('enqueue', 't', '{}', env={'POSTROOM_DB': '', 'POSTROOM_CONFIG': 'c.yaml'})
    assert (tmp_path / 'file.db').exists()


def G1_other_commands_need_only_the_database_of_a_file(postroom, tmp_path):
    """Listing messages does not require the secrets of the sinks."""
    (tmp_path / 'c.yaml').write_text('database: "sqlite:${NAME}.db"\n'
                                     'sinks: { a: { url: "exec:${SECRET}" } }\n')
    env = {'POSTROOM_DB': '', 'NAME': 'shop'}
    postroom.ok('migrate', '-c', 'c.yaml', env=env)
    assert (tmp_path / 'shop.db').exists()
    line = postroom.fails(2, 'list', '-c', 'c.yaml', env={'POSTROOM_DB': ''})
    assert line == 'c.yaml:1: database: the environment variable NAME is not set'


def G1_file_configures_a_relay(postroom, tmp_path):
    (tmp_path / 'c.yaml').write_text('database: sqlite:shop.db\nrelay: { namespace: a }\n'
                                     'sinks: { out: { url: "stdout:" } }\nroutes: [ { sink: out } ]\n')
    env = {'POSTROOM_DB': '', 'POSTROOM_CONFIG': 'c.yaml'}
    mine = postroom.enqueue('t', '{}', '--namespace', 'a', env=env)
    postroom.enqueue('t', '{}', '--namespace', 'b', env=env)
    sent = postroom.ok('relay', '--drain', env=env).objects
    assert [message['id'] for message in sent] == [mine]


def G1_printed_configuration_can_be_loaded(check, tmp_path):
    awkward = 'exec:a \\"b\\\\ \\t\\u2028\\x7f ü $${X} # c: d'
    texts = [FULL, PLAIN, PLAIN.replace('null:', awkward),
             PLAIN.replace('null:', 'file:x?sync=no'), PLAIN + 'relay: { topic: "null" }\n']
    for text in texts:
        first = check(text).out
        yaml.safe_load(first)
        before, after = effective(check, text), effective(check, first)
        assert set(after.pop('sources')) == set(before.pop('sources'))
        assert after == before


def G1_setting_of_a_url_is_not_printed_as_a_default(check):
    """Loaded again, the default would count before it."""
    text = PLAIN.replace('null:', 'file:x?sync=no')
    shown = effective(check, text)
    assert shown['sinks']['out']['sync'] is None
    assert shown['sources']['sinks.out.sync'] == 'c.yaml:1'
    assert 'sync:' not in check(text).out
    assert 'sync: yes  # default' in check(PLAIN.replace('null:', 'file:x')).out


def G1_to_replaces_sinks_and_routes(check):
    text = 'sinks: { a: { url: "exec:${SECRET_OF_SOMEBODY_ELSE}" } }\nroutes: [ { sink: a } ]\n'
    shown = effective(check, text, '--to', 'stdout:')
    assert shown['sinks'] == {'to': {'url': 'stdout:'}} and shown['routes'] == [{'sink': 'to'}]
    assert shown['sources']['sinks.to.url'] == '--to'


def G1_every_fault_is_reported_with_its_line(faults):
    assert faults('''\
databse: x
relay:
  batch_szie: 5
  workers: many
  lease: [ 1s ]
  backoff:
admin: { listen: "0.0.0.0:1", tokn: x }
sinks:
  bus: { concurrency: 0, rate: fast }
  odd name: { url: "nul:" }
  out: { url: "file:x", snyc: no }
  out2: { url: "file:x?sync=perhaps" }
  slow: { url: "null:", rate: 5/d }
  none:
routes:
  - { topic: a, sink: buss }
  - { topik: a }
  - 5
retention: { inbox: 0, dead: soon }
''') == [
        'c.yaml:1: databse: unknown; did you mean database?',
        'c.yaml:4: relay.workers takes a whole number from 1 to 256, not "many"',
        'c.yaml:5: relay.lease: has to be one value, not a list (- …)',
        'c.yaml:6: relay.backoff: has no value; give it one or leave it out',
        'c.yaml:3: relay.batch_szie: unknown; did you mean batch_size?',
        'c.yaml:19: retention.dead takes never or a duration like 250ms, 5s, 10m, 2h or 7d '
        'from 0s to 36525d, not "soon"',
        'c.yaml:19: retention.inbox takes never or a duration like 250ms, 5s, 10m, 2h or 7d '
        'from 1ms to 36525d, not "0"',
        'c.yaml:7: admin.tokn: unknown; did you mean token?',
        'c.yaml:9: sinks.bus.concurrency takes a whole number from 1 to 10000, not "0"',
        'c.yaml:9: sinks.bus: has no url; give it one, as in url: "file:out.ndjson"',
        "c.yaml:10: sinks.odd name: a sink's name consists of letters, digits, _ and -",
        'c.yaml:10: sinks.odd name.url: there is no sink "nul:"; did you mean "null:"? Known: '
        + known_sinks(),
        'c.yaml:11: sinks.out.snyc: unknown; did you mean sync?',
        'c.yaml:12: sinks.out2.url: sync takes true or false, not "perhaps"; run `postroom sinks file`',
        'c.yaml:13: sinks.slow.rate takes a rate like 500/s, 1000/m or 10/h, not "5/d"',
        'c.yaml:14: sinks.none: has no url; give it one, as in url: "file:out.ndjson"',
        'c.yaml:16: routes.1.sink: there is no sink "buss" below sinks:; did you mean bus?',
        'c.yaml:17: routes.2.topik: unknown; did you mean topic?',
        'c.yaml:17: routes.2: has no sink; name one of sinks:',
        'c.yaml:18: routes.3: has to be a map (name: value), not one value',
    ]


def G1_check_reports_errors_of_sinks(faults):
    assert faults('''
database: shop.db
sinks:
  unused: { url: "https://example.com/?ca=/nowhere/unused.pem" }
  hooks: { url: "https://example.com/?ca=/nowhere/ca.pem" }
routes:
  - { sink: hooks }
''')[0].startswith('sink hooks: https: ')
    assert 'stdout: takes nothing' in faults(
        'database: shop.db\nsinks: { out: { url: "stdout:x" } }\nroutes: [ { sink: out } ]\n')[0]


def G1_check_creates_no_file(check, tmp_path):
    check('database: shop.db\nsinks: { out: { url: "file:out" } }\nroutes: [ { sink: out } ]\n')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['c.yaml']


def G1_faulty_single_sink_is_reported(postroom):
    assert 'stdout: takes nothing' in postroom.fails(2, 'relay', '--check', '--to', 'stdout:x')


def known_sinks():
    out = subprocess.run([PROGRAM, 'relay', '--check', '--to', 'zzzzzzzzz:'], check=False,
                         capture_output=True, encoding='utf-8').stderr
    return out.strip().partition('Known: ')[2]


@pytest.mark.parametrize('text,words', [
    (b'', 'is empty'),
    (b'# nothing\n', 'is empty'),
    (b'just a text\n', 'c.yaml:1: a configuration consists of sections'),
    (b'- a\n', 'c.yaml:1: a configuration consists of sections'),
    (b'relay:\n\tlease: 3s\n', 'c.yaml:2: a tab'),
    (b'relay: { lease: "3s }\n', 'c.yaml:2: while scanning a quoted scalar'),
    (b'a: b: c\n', 'c.yaml:1: mapping values are not allowed'),
    (b'relay: &r { lease: 3s }\nsinks: *r\n', 'c.yaml:2: aliases'),
    (b'relay: { *r : 3s }\n', 'c.yaml:1: aliases'),
    (b'relay: !!map { lease: 3s }\n', 'c.yaml:1: tags'),
    (b'relay: { lease: 3s, workers: 2, lease: 4s }\n', 'c.yaml:1: lease: is in line 1'),
    (b'relay:\n  max-delay: 3s\n  max_delay: 4s\n', 'c.yaml:3: max_delay: is in line 2'),
    (b'relay: { lease: 3s }\n---\nrelay: { }\n', 'c.yaml:2: a second document'),
    (b'relay: { ? [ a ] : b }\n', 'c.yaml:1: a name has to be a short word'),
    (b'relay: { lease: "a\\0b" }\n', 'c.yaml:1: a value with a NUL'),
    (b'relay: { lease: "\xff" }\n', 'UTF-8'),
    (b'relay: ' + b'[' * 50000, 'c.yaml:1: nested too deeply'),
    (b'relay: ' + b'{a: ' * 50000, 'c.yaml:1: nested too deeply'),
    (b'a: [' + b'1,' * 3000 + b']', 'c.yaml:1: too many of them'),
    (b'#' * (1 << 20) + b'\n', 'larger than 1 MiB'),
    (PLAIN.encode() + b'relay: 5\n', 'c.yaml:3: relay: has to be a map (name: value), not one value'),
    (b'sinks: [ a ]\n', 'c.yaml:1: sinks: has to be a map'),
    (b'routes: { a: b }\n', 'c.yaml:1: routes: has to be a list'),
    (b'relay: { to: "null:" }\n', 'c.yaml:1: relay.to: unknown'),
    (b'sinks: { a: { url: "null:" } }\n', 'c.yaml: routes is missing'),
    (PLAIN.encode() + b'relay: { topic: "${" }\n', 'c.yaml:3: relay.topic: ${ needs the name'),
    (PLAIN.encode() + b'relay: { topic: "${1A}" }\n', 'c.yaml:3: relay.topic: ${ needs the name'),
    (PLAIN.encode() + b'relay: { topic: "${NOBODY_SET_IT}" }\n',
     'c.yaml:3: relay.topic: the environment variable NOBODY_SET_IT is not set'),
    (PLAIN.encode() + b'relay: { tenant: acme }\n', 'c.yaml:3: relay.tenant takes a UUID'),
    (PLAIN.encode() + b'relay:\n  base_delay: 10m\n', 'c.yaml:4: relay.base_delay is longer than'),
    (PLAIN.encode() + b'relay:\n  max_delay: 10ms\n', 'c.yaml:4: relay.max_delay: base-delay is longer'),
], ids=lambda value: re.sub(r'\W+', '_', value)[:40] if isinstance(value, str) else '')
def G1_invalid_file_is_refused(faults, text, words):
    lines = faults(text)
    assert len(lines) == 1 and words in lines[0], lines


def G1_twenty_faults_are_reported_and_the_rest_counted(faults):
    lines = faults(''.join(f'wrong{n}: 1\n' for n in range(33)) + PLAIN)
    assert len(lines) == 21 and lines[-1] == 'and 13 more'


def G1_unreadable_file_is_reported(postroom):
    assert postroom.fails(2, 'relay', '-c', 'no.yaml').startswith('no.yaml: cannot be read: No such')
    assert postroom.fails(2, 'list', '-c', '.', env={'POSTROOM_DB': ''}).startswith('.: cannot be read')


def D1_a_poll_interval_above_a_third_of_the_lease_is_refused_with_its_line(faults):
    text = PLAIN + 'relay:\n  lease: 3s\n  poll_interval: '
    assert faults(text + '1001ms')[0].startswith(
        'c.yaml:5: relay.poll_interval 1001ms is more than a third of the lease 3s')
    # The one given last takes the blame.
    line = faults(text + '1s', env={'POSTROOM_RELAY_POLL_INTERVAL': '2s'})[0]
    assert line.startswith('$POSTROOM_RELAY_POLL_INTERVAL: relay.poll_interval 2s is more')
    assert faults(text + '1s', '--poll-interval', '2s')[0].startswith('--poll-interval 2s is')


def G1_secrets_are_neither_printed_nor_reported(check, faults):
    env = {'SECRET': 'hunter2', 'POSTROOM_DB': 'postgres://app:hunter2@localhost/shop'}
    for args in ([], ['--json']):
        out = check('sinks: { a: { url: "exec:curl ${SECRET}" } }\nroutes: [ { sink: a } ]\n'
                    'relay: { topic: "${SECRET}" }\n', *args, env=env).out
        assert 'hunter2' not in out
        assert 'postgres://app:***@localhost/shop' in out and 'exec:curl ***' in out
    out = check(PLAIN.replace('null:', 'file:x?sync=no') + 'database: "postgres://a:hunter2@h/d"\n').out
    assert 'hunter2' not in out and 'postgres://a:***@h/d' in out
    out = check(PLAIN.replace('null:', 'nats://hunter2@localhost:4222/t')).out
    assert 'hunter2' not in out and 'nats://***@localhost:4222/t' in out
    for text in (PLAIN + 'relay: { workers: "${SECRET}" }\n',
                 PLAIN + 'relay: { workers: "7${SECRET}" }\n',
                 PLAIN + 'relay: { tenant: "${SECRET}" }\n',
                 PLAIN.replace('null:', 'file:x?sync=${SECRET}'),
                 PLAIN.replace('null:', 'file:x?${SECRET}=1'),
                 PLAIN.replace('null:', '${SECRET}:x'),
                 PLAIN.replace('null:', '${SECRET}'),
                 PLAIN.replace('"null:"', '"null:", rate: "${SECRET}"'),
                 PLAIN.replace('sink: out', 'sink: "${SECRET}"')):
        lines = faults(text, env=env)
        assert len(lines) == 1 and 'hunter2' not in lines[0], lines


def G1_credentials_of_the_service_manager_are_values(check, tmp_path):
    (tmp_path / 'credentials').mkdir()
    (tmp_path / 'credentials' / 'shop-db').write_text('hunter2\n')
    (tmp_path / 'credentials' / 'admin.token').write_text('0123456789abcdef')
    env = {'CREDENTIALS_DIRECTORY': str(tmp_path / 'credentials')}
    text = PLAIN + ('database: "postgres://app:${credential:shop-db}@localhost/shop"\n'
                    'admin: { listen: "0.0.0.0:8025", token: "${credential:admin.token}" }\n'
                    'relay: { topic: "x${credential:shop-db}y" }\n')
    for args in ([], ['--json']):
        out = check(text, *args, env=env).out
        assert 'hunter2' not in out and '0123456789' not in out and 'x***y' in out


def G1_credential_is_read_without_its_last_newline(postroom, tmp_path):
    (tmp_path / 'name').write_text('shop\n')
    (tmp_path / 'c.yaml').write_text('database: "sqlite:${credential:name}.db"\n')
    postroom.ok('migrate', '-c', 'c.yaml', env={'POSTROOM_DB': '', 'CREDENTIALS_DIRECTORY': str(tmp_path)})
    assert (tmp_path / 'shop.db').exists()


@pytest.mark.parametrize('name, content, fault', [
    ('token', None, 'credential token: cannot open '),
    ('token', b'hunter2\0', 'is longer than 65536 bytes or not text'),
    ('token', b'x' * 65537, 'is longer than 65536 bytes or not text'),
    ('../token', b'hunter2', '${credential: wants the name'),
    ('.token', b'hunter2', '${credential: wants the name'),
    ('', b'hunter2', '${credential: wants the name'),
])
def G1_unusable_credential_is_reported(faults, tmp_path, name, content, fault):
    (tmp_path / 'credentials').mkdir()
    for path in (tmp_path / 'token', tmp_path / 'credentials' / 'token'):
        if content:
            path.write_bytes(content)
    lines = faults(PLAIN + 'relay: { topic: "${credential:%s}" }\n' % name, env={'CREDENTIALS_DIRECTORY': str(tmp_path / 'credentials')})
    assert len(lines) == 1 and lines[0].startswith('c.yaml:3: relay.topic: ') and fault in lines[0] and 'hunter2' not in lines[0], lines


def G1_credential_without_a_service_manager_is_reported(faults):
    lines = faults(PLAIN + 'relay: { topic: "${credential:token}" }\n', env={'CREDENTIALS_DIRECTORY': ''})
    assert lines == ['c.yaml:3: relay.topic: credential token: $CREDENTIALS_DIRECTORY is not set; '
                     'with systemd, add LoadCredential=token:FILE to the unit']


def G1_check_touches_nothing(check, tmp_path):
    check('database: sqlite:shop.db\nsinks: { out: { url: "file:out.ndjson" } }\n'
          'routes: [ { sink: out } ]\n')
    assert sorted(os.listdir(tmp_path)) == ['c.yaml']


def X2_dead_messages_are_deleted_after_their_retention(postroom, tmp_path):
    (tmp_path / 'c.yaml').write_text('relay: { topic: old }\nretention: { dead: 1ms }\n'
                                     'sinks: { out: { url: "exec:exit 65" } }\nroutes: [ { sink: out } ]\n')
    kept = postroom.enqueue('kept')
    postroom.ok('relay', '--drain', '--to', 'exec:exit 65')
    postroom.enqueue('old')
    relay = postroom.start('relay', '-c', 'c.yaml', '--log-level', 'off')
    wait_until(lambda: [row['id'] for row in postroom.rows()] == [kept], 'the old one to go')
    assert postroom.show(kept)['status'] == 'dead'
    relay.terminate()
    assert relay.wait() == 0


def documented():
    return (ROOT / 'docs' / 'configuration.md').read_text(encoding='utf-8')


def G1_every_value_is_documented_with_its_default(check):
    shown = effective(check, PLAIN)
    rows = dict(re.findall(r'^\| `([a-z_.]+)` \| ([^|]*) \|', documented(), re.MULTILINE))
    for section in ('relay', 'retention'):
        names = {f'{section}.{name}': value for name, value in shown[section].items()}
        assert {path for path in rows if path.startswith(section + '.')} == set(names)
        for path, value in names.items():
            if value is not None:
                assert f'`{value}`' in rows[path] or path in ('relay.poll_interval',
                                                              'relay.publish_timeout'), path


def G1_the_documented_examples_are_valid(check, postroom):
    example = (ROOT / 'examples' / 'postroom.yaml').read_text(encoding='utf-8')
    blocks = re.findall(r'^```yaml\n(.*?)^```$', documented(), re.MULTILINE | re.DOTALL)
    assert blocks
    for text in [example, *blocks]:
        env = {name: 'x' for name in re.findall(r'(?<!\$)\$\{(\w+)\}', text)}
        check(text, env=env)
