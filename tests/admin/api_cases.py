# SPDX-License-Identifier: Apache-2.0
"""What the API answers, for either database: test_api.py and pgsql/test_admin.py run these."""
import csv
import datetime
import io
import json
import socket

from conftest import wait_until
from fake_clock import clock
from serving import make_dead, read_all, serve

STATES = ('pending', 'processing', 'failed_pending', 'scheduled', 'due', 'dead', 'backlog')


def serve_idle(postroom, *args, **options):
    """A relay that delivers nothing of what the tests enqueue."""
    return serve(postroom, '--to', 'null:', '--namespace', 'none', *args, **options)


def H1_probes_return_their_status(postroom):
    admin = serve_idle(postroom)
    for path in ('/livez', '/readyz'):
        assert admin.get(path) == {'status': 'ok', 'reason': None}
    assert admin.get('/healthz') == {'status': 'healthy', 'reasons': []}
    assert admin('HEAD', '/livez').code == 200 and admin('HEAD', '/livez').body == b''
    assert postroom.ok('health', f'http://127.0.0.1:{admin.port}').out == 'healthy\n'
    assert postroom.ok('health', '--json', f'http://127.0.0.1:{admin.port}/').object['status'] == 'healthy'
    assert postroom.ok('health', f'http://127.0.0.1:{admin.port}/readyz').out == 'ok\n'


def H1_thresholds_decide_health(postroom):
    make_dead(postroom, 3)
    env = {'POSTROOM_HEALTH_DEAD_DEGRADED': '3', 'POSTROOM_HEALTH_DEAD_UNHEALTHY': '5'}
    admin = serve_idle(postroom, env=env)
    health = wait_until(lambda: (answer := admin.get('/healthz'))['reasons'] and answer, 'a reason')
    assert health['status'] == 'degraded'
    assert health['reasons'] == [{'component': 'dead', 'status': 'degraded', 'value': 3, 'threshold': 3, 'since': None,
                                  'message': '3 dead messages; the threshold is 3'}]
    assert postroom.ok('health', f'http://127.0.0.1:{admin.port}').out == 'degraded\n'
    assert admin.get('/api/v1/stats')['status'] == 'degraded'
    admin.stop()
    admin = serve_idle(postroom, env={'POSTROOM_HEALTH_DEAD_UNHEALTHY': '3'})
    wait_until(lambda: admin('GET', '/healthz').code == 503, 'the relay to be unhealthy')
    assert admin('GET', '/readyz').code == 200
    result = postroom('health', f'http://127.0.0.1:{admin.port}')
    assert (result.code, result.out) == (1, 'unhealthy\n')


def H1_dead_letters_of_both_tables_are_reasons_since_the_first_died(postroom):
    make_dead(postroom, 3)
    postroom.ok('inbox', 'submit', 'books', 'e1', '{}')
    postroom.ok('consume', '--handler', 'books', '--exec', 'exit 1', '--max-attempts', '1', '--drain')
    admin = serve_idle(postroom)
    reasons = admin.get('/api/v1/stats')['reasons']
    first = [admin.get(f'/api/v1/{table}/groups?status=dead')['items'][0]['first_at'] for table in ('outbox', 'inbox')]
    assert [(reason['component'], reason['value'], reason['since']) for reason in reasons] == [
        ('dead', 3, first[0]), ('inbox', 1, first[1])]
    assert reasons[1]['message'] == '1 dead message in the inbox; the threshold is 1'


def P2_first_statistics_judge_the_figures_that_they_show(postroom):
    admin = serve_idle(postroom, env={'POSTROOM_HEALTH_DEAD_UNHEALTHY': '3'})
    make_dead(postroom, 3)  # since the janitor has counted
    stats = admin.get('/api/v1/stats')
    assert (stats['dead'], stats['status']) == (3, 'unhealthy')
    assert [reason['component'] for reason in stats['reasons']] == ['dead']


def H1_first_probe_after_a_long_time_counts_the_dead_letters(postroom):
    """As from a cron job: the janitor's counts are old, because no request has asked for them."""
    env, put = clock(postroom)
    admin = serve_idle(postroom, env={'POSTROOM_HEALTH_DEAD_UNHEALTHY': '3', **env})
    make_dead(postroom, 3)
    put('+3600')
    answer = admin('GET', '/healthz')
    assert (answer.code, answer.json['status']) == (503, 'unhealthy')
    assert [reason['component'] for reason in answer.json['reasons']] == ['dead']


def H1_dead_sink_degrades_and_stays_ready(postroom):
    postroom.enqueue('t')
    admin = serve(postroom, '--to', 'http://127.0.0.1:1/')
    health = wait_until(lambda: (answer := admin.get('/healthz'))['reasons'] and answer, 'a reason')
    assert health['status'] == 'degraded' and health['reasons'][0]['component'] == 'sink'
    assert admin('GET', '/readyz').code == 200
    sink = wait_until(lambda: (found := admin.get('/api/v1/sinks')['items'][0])['last_error'] and found, 'an error')
    assert sink['breaker'] in ('open', 'half-open') and sink['open_since'] and sink['last_error_at']
    assert sink['url'] == 'http://127.0.0.1:1/'
    # A fact, not the time of the request.
    asked = datetime.datetime.now(datetime.timezone.utc)
    assert datetime.datetime.fromisoformat(admin.get('/healthz')['reasons'][0]['since']) <= asked


def P1_stats_and_topics_count(postroom):
    make_dead(postroom, 2)
    postroom.enqueue('a.b')
    postroom.enqueue('a.b', '{}', '--delay', '1h')
    admin = serve_idle(postroom)
    stats = admin.get('/api/v1/stats')
    assert {name: stats[name] for name in STATES} == {'pending': 2, 'processing': 0, 'failed_pending': 0, 'scheduled': 1,
                                                      'due': 1, 'dead': 2, 'backlog': 2}
    assert stats['capped'] is False and stats['oldest_age_seconds'] >= 0
    assert (stats['delivered'], stats['delivered_capped']) == (0, False)
    assert stats['inbox'] == {'pending': 0, 'active': 0, 'completed': 0, 'completed_capped': False, 'dead': 0}
    assert set(stats['rates']) == {'1m', '5m', '15m'}
    assert stats['database'] == ('postgres' if 'postgres' in postroom.db else 'sqlite')
    topics = {item['topic']: item for item in admin.get('/api/v1/topics')['items']}
    assert topics['a.b']['pending'] == 2 and topics['orders.created']['dead'] == 2


def P1_topics_show_their_last_error(postroom):
    admin = serve(postroom, '--to', 'exec:echo \"$POSTROOM_TOPIC is unknown\" >&2; [ $POSTROOM_TOPIC = fine ]')
    for topic in ('fine', 'poison', 'fine', 'bitter'):
        postroom.enqueue(topic)

    def last_errors():
        items = admin.get('/api/v1/topics')['items']
        return {item['topic']: item['last_error'] for item in items if item['last_error_at']}
    expected = {topic: f'exit status 1: {topic} is unknown' for topic in ('poison', 'bitter')}
    wait_until(lambda: last_errors() == expected, 'the errors of both topics, and no other')


def P1_stats_have_the_fields_of_the_command(postroom):
    for _ in range(3):
        postroom.enqueue('a.b')
    postroom.ok('relay', '--drain', '--to', 'null:')
    postroom.ok('inbox', 'submit', 'books', 'e1', '{}')
    postroom.ok('consume', '--handler', 'books', '--exec', 'true', '--drain')
    postroom.enqueue('a.b')
    stats, said = serve_idle(postroom).get('/api/v1/stats'), postroom.stats()
    for name in ('pending', 'processing', 'failed_pending', 'delivered', 'dead', 'backlog'):
        assert stats[name] == said[name], name
    assert stats['delivered'] == 3 and stats['inbox']['completed'] == 1


def P1_count_of_delivered_messages_stops_at_its_limit(postroom, sql):
    postroom.ok('migrate')
    now = 'now()' if 'postgres' in postroom.db else '1700000000000000'
    sql('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10050) INSERT INTO postroom_outbox '
        f"(topic, payload, status, created_at, delivered_at) SELECT 't', '{{}}', 'delivered', {now}, {now} FROM n")
    admin = serve_idle(postroom, env={'POSTROOM_RETENTION_DELIVERED': 'never'})

    def delivered():
        stats = admin.get('/api/v1/stats')
        return stats['delivered'], stats['delivered_capped']
    assert delivered() == (10000, True)
    admin.post('/api/v1/outbox/delete', {'filter': {'status': 'delivered'}, 'limit': 100})
    assert delivered() == (9950, False)


def P1_stats_of_a_moment_are_counted_once(postroom):
    postroom.enqueue('a.b')
    admin = serve_idle(postroom)

    def share_a_count():
        times = {admin.get(path)['collected_at'] for path in ('/api/v1/stats', '/api/v1/stats')}
        return len(times) == 1 and times.pop()
    first = wait_until(share_a_count, 'two answers of one count')
    postroom.enqueue('a.b')
    wait_until(lambda: admin.get('/api/v1/stats')['pending'] == 2, 'the next count')
    assert admin.get('/api/v1/stats')['collected_at'] > first


def P1_workers_and_leases_are_listed(postroom):
    postroom.enqueue('t')
    admin = serve(postroom, '--to', 'exec:sleep 1000', '--lease', '1h', '--publish-timeout', '20m')
    answer = wait_until(lambda: (found := admin.get('/api/v1/workers'))['leases'] and found, 'a lease')
    lease = answer['leases'][0]
    assert lease['table'] == 'outbox' and lease['messages'] == 1
    assert lease['worker'] in [item['worker'] for item in answer['items']]
    assert wait_until(lambda: any(item['in_flight'] for item in admin.get('/api/v1/workers')['items']))


def P1_list_filters_and_pages(postroom):
    ids = [postroom.enqueue(f't.{n % 2}', '{}', '--key', f'k{n}', '--namespace', 'n1' if n < 3 else 'default')
           for n in range(7)][::-1]
    admin = serve_idle(postroom)

    def found(query):
        return [item['id'] for item in admin.get(f'/api/v1/outbox?{query}')['items']]
    assert found('') == ids
    assert found('topic=t.1') == ids[1::2] and found('topic=t.*') == ids and found('topic=T.*') == []
    assert found('namespace=n1') == ids[4:] and found('key=k3') == [ids[3]] and found(f'id={ids[2]}') == [ids[2]]
    assert found('status=pending') == ids and found('status=dead') == []
    assert found('created_from=2001-01-01') == ids and found('created_to=2001-01-01T00:00:00Z') == []
    assert found('page=2&page_size=3') == ids[3:6] and found('page=3&page_size=3') == ids[6:]
    assert found('topic=&status=') == ids
    page = admin.get('/api/v1/outbox?page_size=3')
    assert (page['page'], page['page_size'], page['total'], page['total_capped']) == (1, 3, 7, False)
    page = admin.get(f'/api/v1/outbox?page_size=4&after={page["next_after"]}')
    assert page == admin.get(f'/api/v1/outbox?page_size=4&after={ids[2]}')
    assert [item['id'] for item in page['items']] == ids[3:] and page['next_after'] is None
    row = page['items'][0]
    assert 'payload' not in row and 'headers' not in row and row['key'] == 'k3' and row['delivered_at'] is None
    assert admin('GET', '/api/v1/outbox?after=01900000-0000-7000-8000-000000000000').code == 404


def P1_message_is_shown_exactly(postroom):
    id = postroom.enqueue('t', '{"n": 9007199254740993}', '--header', 'a=ü')
    admin = serve_idle(postroom)
    row = admin.get(f'/api/v1/outbox/{id}')
    assert row['id'] == id and '9007199254740993' in row['payload_text']
    assert row['headers'] == {'a': 'ü'} and row['body_base64'] is None and row['attempts_log'] == []
    assert admin.get(f'/api/v1/outbox/{id.upper()}')['id'] == id
    missing = admin('GET', '/api/v1/outbox/01900000-0000-7000-8000-000000000000')
    assert (missing.code, missing.error) == (404, 'not_found')
    assert admin('GET', '/api/v1/outbox/not-a-uuid').code in (400, 404)


def P1_dead_letters_are_grouped_by_cause(postroom):
    make_dead(postroom, 3, 'a', 'exit 3')
    make_dead(postroom, 2, 'b', 'exit 4')
    admin = serve_idle(postroom)
    answer = admin.get('/api/v1/outbox/groups?status=dead')
    assert answer['capped'] is False
    assert [(item['topic'], item['count'], item['fingerprint']) for item in answer['items']] == [
        ('a', 3, 'exit status <n>'), ('b', 2, 'exit status <n>')]
    group = answer['items'][0]
    assert group['example_error'] == 'exit status 3' and group['first_at'] <= group['last_at']
    assert group['sink'] == 'exec'
    found = admin.get('/api/v1/outbox?status=dead&topic=b&fingerprint=exit+status+%3Cn%3E')
    assert found['total'] == 2
    assert admin.get('/api/v1/outbox?error=STATUS%203')['total'] == 3


def P1_group_without_an_error_can_be_changed_alone(postroom, sql):
    make_dead(postroom, 2, 'a')
    sql("INSERT INTO postroom_outbox (topic, payload, status) VALUES ('a', '{}', 'dead')")
    admin = serve_idle(postroom)
    group = next(item for item in admin.get('/api/v1/outbox/groups')['items'] if item['example_error'] is None)
    assert (group['fingerprint'], group['topic'], group['count']) == ('<none>', 'a', 1)
    assert admin.get('/api/v1/outbox?topic=a&fingerprint=%3Cnone%3E')['total'] == 1
    filter = {'status': 'dead', 'topic': 'a', 'fingerprint': '<none>'}
    assert admin.post('/api/v1/outbox/delete', {'filter': filter}) == {'matched': 1, 'done': 1, 'more': False}
    assert admin.get('/api/v1/outbox')['total'] == 2


ROUTED = """
sinks:
  bus: { url: "exec:exit 3" }
  hooks: { url: "exec:exit 3" }
routes:
  - { namespace: a, sink: bus }
  - { namespace: b, sink: hooks }
"""


def P1_dead_letters_of_a_topic_are_grouped_and_changed_by_sink(postroom, tmp_path):
    (tmp_path / 'routed.yaml').write_text(ROUTED)
    for namespace in 'aaabb':
        postroom.enqueue('t', '{}', '--namespace', namespace)
    postroom.ok('relay', '-c', tmp_path / 'routed.yaml', '--drain', '--max-attempts', '1')
    admin = serve_idle(postroom)

    def groups(command=False):
        items = (postroom.ok('list', '--status', 'dead', '--group-by', 'error', '--json').objects if command
                 else admin.get('/api/v1/outbox/groups')['items'])
        assert {(item['fingerprint'], item['topic']) for item in items} <= {('exit status <n>', 't')}
        return [(item['sink'], item['count']) for item in items]
    assert groups() == groups(command=True) == [('bus', 3), ('hooks', 2)]
    assert admin.get('/api/v1/outbox?sink=hooks')['total'] == 2
    assert admin.get('/api/v1/outbox?sink=%3Cnone%3E')['total'] == 0
    filter = {'status': 'dead', 'topic': 't', 'fingerprint': 'exit status <n>', 'sink': 'hooks'}
    assert admin.post('/api/v1/outbox/retry', {'filter': filter, 'dry_run': True})['matched'] == 2
    assert admin.post('/api/v1/outbox/retry', {'filter': filter}) == {'matched': 2, 'done': 2, 'more': False}
    assert groups() == [('bus', 3)]
    assert postroom.ok('retry', '--dead', '--sink', 'bus', '--dry-run', '--json').object == {'matched': 3}
    done = postroom.ok('retry', '--dead', '--sink', 'bus', '--json')
    assert done.object == {'retried': 3} and 'filter="table=outbox status=dead sink=bus" count=3' in done.err
    assert groups() == []
    postroom.ok('relay', '-c', tmp_path / 'routed.yaml', '--drain', '--max-attempts', '1')
    filter['sink'] = 'bus'
    assert admin.post('/api/v1/outbox/delete', {'filter': filter, 'dry_run': True})['matched'] == 3
    assert admin.post('/api/v1/outbox/delete', {'filter': filter})['done'] == 3
    assert groups() == groups(command=True) == [('hooks', 2)]
    assert postroom.ok('purge', '--status', 'dead', '--sink', 'hooks', '--yes', '--json').object == {'purged': 2}


def P1_retry_and_delete_change_only_matching_messages(postroom):
    make_dead(postroom, 3, 'a')
    make_dead(postroom, 2, 'b')
    admin = serve_idle(postroom)
    tried = admin.post('/api/v1/outbox/retry', {'filter': {'topic': 'a'}, 'dry_run': True})
    assert (tried['matched'], tried['done'], len(tried['examples'])) == (3, 0, 3)
    assert admin.get('/api/v1/outbox?status=dead')['total'] == 5
    assert admin.post('/api/v1/outbox/retry', {'filter': {'topic': 'a'}, 'limit': 2}) == {
        'matched': 3, 'done': 2, 'more': True}
    assert admin.post('/api/v1/outbox/retry', {'filter': {'topic': 'a', 'status': 'dead'}}) == {
        'matched': 1, 'done': 1, 'more': False}
    assert admin.get('/api/v1/outbox?status=pending')['total'] == 3
    assert admin.post('/api/v1/outbox/delete', {'filter': {'status': 'dead'}, 'rate': 1}) == {
        'matched': 2, 'done': 1, 'more': True}
    assert admin.post('/api/v1/outbox/delete', {'filter': {'status': 'dead'}})['done'] == 1
    assert admin.get('/api/v1/outbox')['total'] == 3
    # Only finished messages can be deleted, only dead ones retried.
    for path, filter in (('delete', {}), ('delete', {'status': 'pending'}), ('retry', {'status': 'pending'})):
        answer = admin('POST', f'/api/v1/outbox/{path}', {'filter': filter})
        assert (answer.code, answer.error) == (400, 'bad_body'), filter


def P1_action_on_many_messages_is_done_in_calls_of_bounded_size(postroom, sql):
    postroom.ok('migrate')
    sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12500) "
        "INSERT INTO postroom_outbox (topic, payload, status) SELECT 't', '{}', 'dead' FROM n")
    admin = serve_idle(postroom)
    left, actions = 12500, 0
    while left:
        answer = admin.post('/api/v1/outbox/delete', {'filter': {'status': 'dead'}})
        assert answer['matched'] == left and 1000 <= answer['done'] <= 10000 or answer['done'] == left
        left, actions = left - answer['done'], actions + 1
        assert answer['more'] == (left > 0)
        # A client that stops here leaves the others as they are.
        assert admin.get('/api/v1/stats')['dead'] == left
    assert actions > 1
    wait_until(lambda: len(admin.logged('OUTBOX_OPERATOR_ACTION')) >= actions, 'a line of each')
    admin.stop()
    assert len(admin.logged('OUTBOX_OPERATOR_ACTION')) == actions


def P1_count_of_matching_messages_is_reported_as_capped(postroom, sql):
    postroom.ok('migrate')
    sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100001) "
        "INSERT INTO postroom_outbox (topic, payload, status) SELECT 't', '{}', 'dead' FROM n")
    admin = serve_idle(postroom)
    answer = admin.post('/api/v1/outbox/retry', {'filter': {}, 'dry_run': True})
    assert (answer['matched'], answer['matched_capped'], answer['more']) == (100000, True, True)
    assert 'matched_capped' not in admin.post('/api/v1/outbox/retry', {'filter': {'topic': 'x'}, 'dry_run': True})


def P1_one_message_is_retried_or_deleted(postroom):
    dead, other = make_dead(postroom, 2)
    pending = postroom.enqueue('later')
    admin = serve_idle(postroom)
    assert admin.post(f'/api/v1/outbox/{dead}/retry') == {'id': dead, 'status': 'pending'}
    assert postroom.show(dead)['status'] == 'pending'
    again = admin('POST', f'/api/v1/outbox/{dead}/retry')
    assert (again.code, again.error) == (409, 'conflict') and b'pending' in again.body
    answer = admin('DELETE', f'/api/v1/outbox/{other}')
    assert answer.json == {'id': other, 'deleted': True}
    assert admin('DELETE', f'/api/v1/outbox/{other}').code == 404
    assert admin('DELETE', f'/api/v1/outbox/{pending}').error == 'conflict'
    assert postroom.show(pending)['status'] == 'pending'


def P1_export_streams_every_row(postroom):
    lines = [json.dumps({'topic': 't', 'payload': {'n': n, 'fill': 'x' * 3000}}) for n in range(300)]
    postroom.ok('enqueue', '--ndjson', '-', input='\n'.join(lines))
    postroom.enqueue('odd', '{}', '--key', '=1+1,"x"\n2')
    admin = serve_idle(postroom)
    rows = [json.loads(line) for line in admin('GET', '/api/v1/outbox.ndjson').body.splitlines()]
    assert [json.loads(row['payload_text'])['n'] for row in rows[1:]] == list(range(299, -1, -1))
    assert len({row['id'] for row in rows}) == 301
    answer = admin('GET', '/api/v1/outbox.csv')
    assert answer.headers['Content-Disposition'] == 'attachment; filename="outbox.csv"'
    table = list(csv.DictReader(io.StringIO(answer.body.decode(), newline='')))
    assert [row['id'] for row in table] == [row['id'] for row in rows]
    assert table[0]['key'] == '\'=1+1,"x"\n2'  # a spreadsheet must not run it
    assert len(admin('GET', '/api/v1/outbox.csv?topic=t&limit=7').body.splitlines()) == 8
    assert admin('GET', '/api/v1/inbox.ndjson').body == b''


def P1_export_continues_after_deleted_rows(postroom, sql):
    lines = [json.dumps({'topic': 't', 'payload': {'n': n, 'fill': 'x' * 100000}}) for n in range(200)]
    postroom.ok('enqueue', '--ndjson', '-', input='\n'.join(lines))
    admin = serve_idle(postroom)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((admin.host, admin.port))
        connection.sendall(b'GET /api/v1/outbox.ndjson HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
        start = connection.recv(100)
        # Its last row is among them, whichever it is.
        sql('DELETE FROM postroom_outbox WHERE seq > (SELECT min(seq) FROM postroom_outbox)')
        whole = start + read_all(connection)
    assert whole.startswith(b'HTTP/1.1 200') and whole.endswith(b'0\r\n\r\n'), whole[-300:]
    assert whole.count(b'"payload_text"') < 200


def P1_page_continues_after_deleted_rows(postroom, sql):
    ids = [postroom.enqueue('t', '{"n": %d}' % n) for n in range(6)]
    admin = serve_idle(postroom)
    page = admin.get('/api/v1/outbox?page_size=2')
    sql('DELETE FROM postroom_outbox WHERE seq > (SELECT min(seq) FROM postroom_outbox) + 2')
    page = admin.get(f'/api/v1/outbox?page_size=2&after={page["next_after"]}')
    assert [item['id'] for item in page['items']] == ids[2:0:-1]
    # In a list that is sorted by delivery, too.
    postroom.ok('relay', '--drain', '--to', 'null:')
    page = admin.get('/api/v1/outbox?status=delivered&page_size=1')
    first = page['items'][0]['id']
    assert admin('DELETE', f'/api/v1/outbox/{first}').code == 200
    rest = admin.get(f'/api/v1/outbox?status=delivered&after={page["next_after"]}')
    assert {item['id'] for item in rest['items']} == set(ids[:3]) - {first}
    for after in ('x', f'{first}.', f'{first}.1', f'{first}.1.', f'{first}.-1.1', f'{first}.1.1.1', f'{first}.1.1x',
                  f'{first}.{"9" * 19}.1'):
        assert admin('GET', f'/api/v1/outbox?after={after}').code == 400, after


def P1_inbox_is_served_alike(postroom):
    for n in range(3):
        postroom.ok('inbox', 'submit', 'books', f'e/{n}', '{"n": %d}' % n)
    postroom.ok('consume', '--handler', 'books', '--exec', 'exit 1', '--max-attempts', '1', '--drain')
    admin = serve_idle(postroom)
    page = admin.get('/api/v1/inbox?status=dead&handler=books&page_size=2')
    assert (page['total'], len(page['items'])) == (3, 2) and page['items'][0]['handler'] == 'books'
    rest = admin.get(f'/api/v1/inbox?page_size=2&after={page["next_after"]}')
    assert len(rest['items']) == 1 and rest['next_after'] is None
    row = admin.get('/api/v1/inbox/books/e%2F1')
    assert row['id'] == 'e/1' and json.loads(row['payload_text']) == {'n': 1} and 'steps' in row
    assert admin.get('/api/v1/inbox/groups')['items'][0]['handler'] == 'books'
    assert admin.post('/api/v1/inbox/books/e%2F1/retry') == {'id': 'e/1', 'status': 'pending'}
    assert admin('POST', '/api/v1/inbox/other/e%2F1/retry').code == 404
    assert admin.post('/api/v1/inbox/retry', {'filter': {'handler': 'books'}, 'limit': 1})['done'] == 1
    assert admin('DELETE', '/api/v1/inbox/books/e%2F1').code == 409
    assert admin.post('/api/v1/inbox/delete', {'filter': {'status': 'dead'}}) == {'matched': 1, 'done': 1, 'more': False}
    assert admin.get('/api/v1/stats')['inbox']['pending'] == 2


def P1_consumer_serves_too(postroom):
    admin = serve(postroom, '--handler', 'books', '--exec', 'true', command='consume')
    postroom.ok('inbox', 'submit', 'books', 'e1', '{}')
    wait_until(lambda: admin.get('/api/v1/inbox?status=completed')['total'] == 1, 'the job to be done')
    assert admin.get('/healthz')['status'] == 'healthy'
    assert b'postroom_' in admin('GET', '/metrics').body
    admin.stop()


def P2_figures_are_counted_again_after_an_action(postroom):
    ids = make_dead(postroom, 3)
    admin = serve(postroom, '--to', 'null:')
    assert admin.get('/api/v1/stats')['dead'] == 3
    admin.post(f'/api/v1/outbox/{ids[0]}/retry')
    assert admin.get('/api/v1/stats')['dead'] == 2
    admin.post('/api/v1/outbox/delete', {'filter': {'status': 'dead'}})
    assert admin.get('/api/v1/stats')['dead'] == 0
    admin.stop()
