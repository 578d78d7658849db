# SPDX-License-Identifier: Apache-2.0
"""Routes of a configuration: each message goes to the sink of the first that fits it."""
from conftest import wait_until
from relay_process import lines_of

CONFIG = '''
relay: { poll_interval: 50ms, workers: 1 }
sinks:
  a: { url: "file:a.ndjson" }
  b: { url: "file:b.ndjson" }
  away: { url: "exec:test -d there || exit 127; echo >> there/lines" }
routes:
  - { namespace: billing, topic: "orders.*", sink: b }
  - { topic: "orders.*", sink: a }
  - { namespace: billing, sink: a }
  - { topic: "away.*", sink: away }
'''


def write(tmp_path, text=CONFIG):
    (tmp_path / 'c.yaml').write_text(text)


def topics_in(path):
    return sorted(f"{line['namespace']}/{line['topic']}" for line in lines_of(path))


def D1_first_matching_route_selects_the_sink(postroom, tmp_path):
    write(tmp_path)
    for namespace in ('default', 'billing'):
        for topic in ('orders.paid', 'users.new'):
            postroom.enqueue(topic, '{}', '--namespace', namespace)
    result = postroom.ok('relay', '-c', 'c.yaml', '--drain')
    assert topics_in(tmp_path / 'a.ndjson') == ['billing/users.new', 'default/orders.paid']
    assert topics_in(tmp_path / 'b.ndjson') == ['billing/orders.paid']
    assert postroom.stats()['pending'] == 1
    assert postroom.stats()['unrouted'] is None
    assert postroom.ok('stats', '-c', 'c.yaml', '--json').object['unrouted'] == 1
    assert postroom.ok('stats', '-c', 'c.yaml').out.endswith(' unrouted=1\n')
    warning, = [line for line in result.err.splitlines() if line.startswith('OUTBOX_UNROUTED')]
    assert 'count=1 namespace=default topic=users.new level=warn' in warning


def D1_route_without_namespace_and_topic_matches_every_message(postroom, tmp_path):
    write(tmp_path, CONFIG + '  - { sink: b }\n')
    postroom.enqueue('users.new')
    result = postroom.ok('relay', '-c', 'c.yaml', '--drain')
    assert topics_in(tmp_path / 'b.ndjson') == ['default/users.new']
    assert 'OUTBOX_UNROUTED' not in result.err


def D1_to_replaces_sinks_and_routes(postroom, tmp_path):
    write(tmp_path)
    postroom.enqueue('users.new')
    result = postroom.ok('relay', '-c', 'c.yaml', '--drain', '--to', 'file:to.ndjson')
    assert topics_in(tmp_path / 'to.ndjson') == ['default/users.new']
    assert 'sink=' not in result.err


def D5_sink_outage_does_not_affect_other_sinks(postroom, tmp_path):
    write(tmp_path)
    for _ in range(3):
        postroom.enqueue('away.1')
    with open(tmp_path / 'log', 'wb') as log:
        relay = postroom.start('relay', '-c', 'c.yaml', stderr=log)
    logged = lambda text: text in (tmp_path / 'log').read_text()
    wait_until(lambda: logged('OUTBOX_SINK_UNREACHABLE'))
    for _ in range(10):
        postroom.enqueue('orders.paid')
    wait_until(lambda: len(lines_of(tmp_path / 'a.ndjson')) == 10)
    assert logged('sink=away') and logged('sink=a ')
    assert {row['attempts'] for row in postroom.rows('--topic', 'away.*')} == {0}
    (tmp_path / 'there').mkdir()
    wait_until(lambda: postroom.stats()['delivered'] == 13)
    relay.terminate()
    assert relay.wait() == 0
