# SPDX-License-Identifier: Apache-2.0
"""/metrics of a real relay and a real consumer, and the alerts that are built on it."""
import json
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess

import pytest

from conftest import PATIENCE, ROOT, wait_until
from relay_process import count_whole_lines, enqueue_many, expire_leases
from scraping import Watched

ALERTS = ROOT / 'contrib' / 'prometheus'
DASHBOARD = ROOT / 'contrib' / 'grafana' / 'postroom.json'
METRIC = re.compile(r'\b(?:postroom|process)_[a-z_]+\b')
needs_promtool = pytest.mark.skipif(not shutil.which('promtool'), reason='promtool is missing')


def age_messages(postroom, seconds):
    """As if they had been enqueued that many seconds ago."""
    with sqlite3.connect(postroom.db.removeprefix('sqlite:'), timeout=PATIENCE) as db:
        db.execute('UPDATE postroom_outbox SET created_at = created_at - ?1, '
                   'next_attempt_at = next_attempt_at - ?1', (seconds * 1000000,))


def families(text):
    return dict(line.split(' ', 3)[2:] for line in text.splitlines() if line.startswith('# HELP '))


def promtool(*args, **options):
    done = subprocess.run(['promtool', *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


@needs_promtool
def M1_each_alert_fires_and_clears():
    promtool('check', 'rules', ALERTS / 'alerts.yml')
    promtool('test', 'rules', 'alerts_test.yml', cwd=ALERTS)
    rules = set(re.findall(r'alert: (\w+)', (ALERTS / 'alerts.yml').read_text()))
    tests = re.findall(r'alertname: (\w+)\n    exp_alerts:\n', (ALERTS / 'alerts_test.yml').read_text())
    assert rules == set(tests)


def M1_each_alert_has_a_runbook():
    text = (ALERTS / 'alerts.yml').read_text()
    pages = dict(re.findall(r'alert: (\w+)(?:(?!alert:).)*?runbook: "([^"]+)"', text, re.S))
    assert len(pages) == text.count('alert: ')
    for alert, page in pages.items():
        assert (ROOT / page).read_text().startswith(f'# {alert}\n')
    assert {(ROOT / page).name for page in pages.values()} == \
        {path.name for path in (ROOT / 'docs' / 'runbooks').iterdir()}


@pytest.fixture
def relay_and_consumer(postroom):
    postroom.enqueue('t')
    postroom.ok('inbox', 'submit', 'mail', 'e1', '{}')
    relay = Watched(postroom, 'relay', '--to', 'null:').wait()
    consumer = Watched(postroom, 'consume', '--handler', 'mail', '--exec', 'cat >/dev/null').wait()
    relay.collected()
    return relay, consumer


@needs_promtool
def M1_promtool_accepts_metrics_of_relay_and_consumer(relay_and_consumer):
    relay, consumer = relay_and_consumer
    consumer.wait_for(lambda metrics: metrics.sum('postroom_handler_events_total',
                                                  outcome='completed') == 1)
    for process in (relay, consumer):
        assert promtool('check', 'metrics', input=process.get()) == ''


def M1_alerts_and_dashboard_name_only_metrics_that_exist(relay_and_consumer):
    emitted = set()
    for process in relay_and_consumer:
        emitted |= process.collected().names()
    rules = (ALERTS / 'alerts.yml').read_text()
    # Only the database's own statistics are missing on SQLite.
    for text, absent in ((rules, set()), (DASHBOARD.read_text(), {'postroom_outbox_table_bytes'})):
        used = set(METRIC.findall(text))
        assert used - absent <= emitted, used - emitted


def M1_openmetrics_is_served_when_asked_for(relay_and_consumer):
    for process in relay_and_consumer:
        text = process.get(Accept='application/openmetrics-text; version=1.0.0')
        assert text.endswith('\n# EOF\n')
        assert '# TYPE postroom_leases_lost counter\npostroom_leases_lost_total 0\n' in text
        assert '# EOF' not in process.get()


@pytest.mark.parametrize('accept, openmetrics', [
    # As Prometheus 2.42 and 3 ask.
    ('application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,'
     'text/plain;version=0.0.4;q=0.5,*/*;q=0.1', True),
    ('application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,'
     'text/plain;version=0.0.4;escaping=allow-utf-8;q=0.3,*/*;q=0.2', True),
    ('Application/OpenMetrics-Text', True), (' , application/openmetrics-text ; q=0.5', True),
    ('*/*', False), ('text/html', False), ('', False), ('application/openmetrics-text;q=0', False),
    ('text/plain,application/openmetrics-text;q=0.9', False), ('application/openmetrics-textile', False),
    ('application/openmetrics-text;q=x', False), ('x;y="application/openmetrics-text"', False)])
def M1_format_of_metrics_follows_the_accept_header(postroom, accept, openmetrics):
    relay = Watched(postroom, 'relay', '--to', 'null:').wait()
    assert relay.get(Accept=accept).endswith('\n# EOF\n') == openmetrics


def M1_documentation_lists_every_metric(relay_and_consumer):
    """docs/metrics.md is compared with the table that /metrics is written from."""
    source = (ROOT / 'src' / 'relay' / 'families.h').read_text()
    table = re.findall(r'X\((\w+), (\w+), "(\w+)", "([^"]*)", \\\n\s+"([^"]+)"\)', source)
    assert len(table) == source.count('\tX(')
    documented = re.findall(r'^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$',
                            (ROOT / 'docs' / 'metrics.md').read_text(), re.M)
    assert documented == [(name + ('_total' if kind == 'COUNTER' else ''), kind.lower(),
                           labels or '–', help) for _, kind, name, labels, help in table]
    for process in relay_and_consumer:
        for name, help in families(process.get()).items():
            assert any(row[0] == name and row[3] == help for row in documented), name


def M1_each_alert_has_a_test_with_a_real_relay():
    tests = ''.join((ROOT / 'tests' / 'relay' / name).read_text() for name in ('test_metrics.py', 'metrics.c'))
    named = {alert for line in re.findall(r'^(?:    """|/\* )(Postroom\w+(?:, Postroom\w+)*)(?:"""| \*/)$', tests, re.M)
             for alert in line.split(', ')}
    assert named == set(re.findall(r'alert: (\w+)', (ALERTS / 'alerts.yml').read_text()))


def M1_killed_relay_cannot_be_scraped(postroom):
    """PostroomRelayDown"""
    relay = Watched(postroom, 'relay', '--to', 'null:').wait()
    relay.process.kill()
    relay.process.wait()
    with pytest.raises(OSError):
        relay.get()


def M1_unreachable_sink_opens_the_breaker_metric(postroom, tmp_path):
    """PostroomSinkBreakerOpen"""
    postroom.enqueue()
    relay = Watched(postroom, 'relay', '--to', 'exec:test -e up || exit 127')
    relay.wait_for(lambda m: m.all('postroom_sink_breaker_open', sink='exec') == [1])
    (tmp_path / 'up').touch()
    relay.wait_for(lambda m: m.all('postroom_sink_breaker_open', sink='exec') == [0])


def M1_stuck_backlog_crosses_the_thresholds(postroom):
    """PostroomNotDelivering, PostroomOldMessages, PostroomBacklogGrows"""
    enqueue_many(postroom, 10001)
    age_messages(postroom, 400)
    relay = Watched(postroom, 'relay', '--to', 'exec:exit 127')
    metrics = relay.collected()
    assert metrics.all('postroom_outbox_backlog_messages') == [10001]
    assert metrics.all('postroom_outbox_oldest_age_seconds')[0] > 300
    assert metrics.all('postroom_messages_published_total', outcome='delivered')
    assert metrics.sum('postroom_messages_published_total', outcome='delivered') == 0


def M1_dead_letters_and_failures_cross_the_thresholds(postroom):
    """PostroomDeadLetters, PostroomDeadLettersRemain, PostroomFailureRatio"""
    for topic in ('good', 'bad'):
        postroom.enqueue(topic)
    args = ('--to', 'exec:test $POSTROOM_TOPIC = good', '--max-attempts', '1')
    relay = Watched(postroom, 'relay', *args)
    metrics = relay.wait_for(
        lambda m: m.sum('postroom_messages_published_total', outcome='delivered') == 1 and
        m.sum('postroom_messages_published_total', sink='exec', outcome='failed') == 1 and
        m.sum('postroom_messages_dead_total', topic='bad', reason='max_attempts') == 1)
    assert metrics.sum('postroom_messages_dead_total') == 1
    relay.process.terminate()
    relay.process.wait()
    assert Watched(postroom, 'relay', *args).collected().all('postroom_outbox_dead_messages') == [1]


def M1_old_message_is_counted_as_slow_delivery(postroom):
    """PostroomSlowDelivery"""
    postroom.enqueue()
    age_messages(postroom, 31)
    relay = Watched(postroom, 'relay', '--to', 'null:').wait()
    metrics = relay.wait_for(lambda m: m.sum('postroom_delivery_latency_seconds_count') == 1)
    assert metrics.all('postroom_delivery_latency_seconds_bucket', le='30') == [0]
    assert metrics.all('postroom_delivery_latency_seconds_bucket', le='60') == [1]


def M1_due_time_begins_the_latency_of_a_delayed_message(postroom):
    postroom.enqueue('t', '{}', '--delay', '500ms')
    age_messages(postroom, 3600)
    with sqlite3.connect(postroom.db.removeprefix('sqlite:'), timeout=PATIENCE) as db:
        db.execute("UPDATE postroom_outbox SET next_attempt_at = "
                   "CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)"
                   if sqlite3.sqlite_version_info >= (3, 42) else
                   "UPDATE postroom_outbox SET next_attempt_at = strftime('%s', 'now') * 1000000")
    relay = Watched(postroom, 'relay', '--to', 'null:').wait()
    metrics = relay.wait_for(lambda m: m.sum('postroom_delivery_latency_seconds_count') == 1)
    assert metrics.all('postroom_delivery_latency_seconds_bucket', le='900') == [1]


def M1_lost_lease_is_counted(postroom):
    """PostroomLeasesLost"""
    postroom.enqueue()
    relay = Watched(postroom, 'relay', '--workers', '1', '--to',
                    'exec:touch begun; while ! test -e on; do sleep 0.05; done')
    begun, on = (pathlib.Path(postroom.cwd) / name for name in ('begun', 'on'))
    wait_until(begun.exists)
    with sqlite3.connect(postroom.db.removeprefix('sqlite:'), timeout=PATIENCE) as db:
        db.execute('UPDATE postroom_outbox SET claims = claims + 1')
    on.touch()
    metrics = relay.wait_for(lambda m: m.all('postroom_leases_lost_total') == [1])
    assert metrics.sum('postroom_messages_published_total', outcome='delivered') == 0


CONFIG = '''
sinks:
  out:
    url: {url}
routes:
  - sink: out
'''


def M1_counters_equal_deliveries_after_reloads_and_a_kill(postroom, sql, tmp_path):
    file = tmp_path / 'postroom.yaml'
    file.write_text(CONFIG.format(url='file:a.ndjson'))
    args = ('-c', file, 'relay', '--batch-size', '20')
    enqueue_many(postroom, 300)
    first = Watched(postroom, *args)
    first.wait_for(lambda m: m.sum('postroom_messages_published_total', outcome='delivered') >= 20)
    first.process.kill()
    first.process.wait()
    expire_leases(sql)
    enqueue_many(postroom, 500)
    delivered = postroom.stats()['delivered']
    second = Watched(postroom, *args)
    for url in ('file:b.ndjson', 'file:a.ndjson', 'file:b.ndjson'):
        second.wait_for(lambda m: m.sum('postroom_messages_claimed_total') > 0)
        file.write_text(CONFIG.format(url=url))
        second.process.send_signal(signal.SIGHUP)
        enqueue_many(postroom, 100)
    wait_until(lambda: postroom.stats()['delivered'] == 1100)
    metrics = second.wait_for(lambda m: m.sum('postroom_sink_in_flight_messages') == 0 and m.sum(
        'postroom_messages_published_total', sink='out', outcome='delivered') == 1100 - delivered)
    assert metrics.sum('postroom_delivery_latency_seconds_count', sink='out') == 1100 - delivered
    assert metrics.all('postroom_config_last_reload_successful') == [1]
    assert metrics.sum('postroom_sink_in_flight_bytes') == 0
    assert metrics.sum('postroom_messages_claimed_total') == \
        metrics.sum('postroom_messages_published_total') + metrics.sum('postroom_leases_lost_total')
    assert count_whole_lines(tmp_path / 'a.ndjson') + count_whole_lines(tmp_path / 'b.ndjson') >= 1100
    file.write_text('nonsense: [')
    second.process.send_signal(signal.SIGHUP)
    second.wait_for(lambda m: m.all('postroom_config_last_reload_successful') == [0])


def M1_topics_beyond_the_limit_are_counted_as_other(postroom):
    lines = ''.join(json.dumps({'topic': f't{n}', 'payload': {}}) + '\n' for n in range(120))
    postroom.ok('enqueue', '--ndjson', '-', input=lines)
    with open(pathlib.Path(postroom.cwd) / 'log', 'wb') as log:
        relay = Watched(postroom, 'relay', '--to', 'null:', '--workers', '1', stderr=log)
    metrics = relay.wait_for(
        lambda m: m.sum('postroom_messages_published_total', outcome='delivered') == 120)
    topics = {has['topic'] for name, has, _ in metrics.samples
              if name == 'postroom_messages_claimed_total'}
    assert len(topics) == 101 and 'other' in topics
    assert metrics.sum('postroom_messages_claimed_total', topic='other') == 20
    relay.process.terminate()
    relay.process.wait()
    log = (pathlib.Path(postroom.cwd) / 'log').read_text()
    assert log.count('OUTBOX_METRICS_TOPICS_CAPPED limit=100') == 1
