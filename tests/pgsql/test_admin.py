# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys
import threading

from conftest import wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'admin'))

from api_cases import *  # noqa: E402,F401,F403 -- the tests, with PostgreSQL
from api_cases import serve_idle  # noqa: E402
from serving import Admin, serve  # noqa: E402


def H1_probes_survive_a_database_outage(postroom, server):
    admin = serve(postroom, '--to', 'null:')
    server.stop()
    wait_until(lambda: admin('GET', '/readyz').code == 503, 'the relay not to be ready')
    assert admin('GET', '/livez').code == 200
    for path in ('/api/v1/stats', '/api/v1/outbox', '/api/v1/outbox.csv'):
        answer = admin('GET', path)
        assert answer.code == 503 and answer.error == 'database_unavailable', answer
    wait_until(lambda: admin('GET', '/healthz').code == 503, 'the relay to be unhealthy')
    assert admin('GET', '/metrics').code == 200
    server.start()
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    wait_until(lambda: admin('GET', '/api/v1/stats').code == 200, 'the statistics')
    admin.stop()


def P1_probe_without_token_does_not_describe_the_database(postroom, server):
    admin = serve(postroom, '--to', 'null:', env={'POSTROOM_ADMIN_TOKEN': 'all', 'POSTROOM_ADMIN_READ_TOKEN': 'read'})
    server.stop()

    def reason(token):
        answer = admin('GET', '/readyz', token=token)
        return answer.code == 503 and answer.json['reason']
    for token in ('all', 'read'):
        wait_until(lambda token=token: 'onnect' in (reason(token) or ''), 'the reason for those who have a token')
    assert reason('') == reason('wrong') == 'the database cannot be used'
    server.start()
    wait_until(lambda: reason('') is False, 'the relay to be ready')
    admin.stop()


def H1_relay_is_live_before_the_database_is_reachable(postroom, server):
    server.stop()
    admin = Admin(postroom.start('relay', '--to', 'null:', '--admin', '127.0.0.1:0'))
    assert admin('GET', '/livez').code == 200
    assert admin('GET', '/readyz').code == 503
    server.start()
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    admin.stop()


def P1_query_on_a_locked_table_is_answered_as_busy(postroom, place, database):
    postroom.enqueue('t')
    admin = serve_idle(postroom)
    holder = place.connect(database)
    try:
        holder.cursor().execute('BEGIN; LOCK TABLE postroom_outbox IN ACCESS EXCLUSIVE MODE')
        for method, path, body in (('GET', '/api/v1/outbox', None), ('GET', '/api/v1/stats', None),
                                   ('POST', '/api/v1/outbox/retry', {'filter': {}})):
            answer = admin(method, path, body)
            assert (answer.code, answer.error) == (503, 'busy') and b'statement timeout' in answer.body, answer
        assert admin('GET', '/livez').code == 200
    finally:
        holder.close()
    assert wait_until(lambda: (answer := admin('GET', '/api/v1/outbox')).code == 200 and answer).json['total'] == 1
    admin.stop()


def H1_slow_queries_do_not_delay_the_readiness_probe(postroom, sql, place, database):
    admin = serve_idle(postroom)
    holder = place.connect(database)
    done = []
    threads = [threading.Thread(target=lambda: done.append(admin('GET', '/api/v1/inbox').code)) for _ in range(5)]
    try:
        holder.cursor().execute('BEGIN; LOCK TABLE postroom_inbox IN ACCESS EXCLUSIVE MODE')
        assert admin('GET', '/api/v1/inbox').error == 'busy'
        for thread in threads:
            thread.start()
        wait_until(lambda: sql('SELECT count(*) FROM pg_locks WHERE NOT granted')[0][0], 'a query that waits')
        assert admin('GET', '/readyz').code == 200
        assert len(done) < 5
    finally:
        holder.close()
    for thread in threads:
        thread.join()
    admin.stop()


def M1_count_beyond_the_limit_skips_rows_and_falls_back_to_counting(postroom, sql):
    sql('ALTER TABLE postroom_outbox SET (autovacuum_enabled = off)')
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', '{}' FROM generate_series(1, 100001)")
    sql('VACUUM ANALYZE postroom_outbox')

    def is_hinted():  # the query skips rows only if the statistics have about as many as the limit
        return sql("SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relname = 'postroom_outbox_unkeyed' "
                   'AND reltuples >= 90000')[0][0] > 0
    assert is_hinted(), sql("SELECT relname, reltuples FROM pg_class WHERE relkind = 'i' AND relname LIKE 'postroom_outbox%%'")
    admin = serve_idle(postroom)
    stats = admin.get('/api/v1/stats')
    assert (stats['pending'], stats['capped']) == (100000, True)
    # The hint is wrong now: there are no rows to skip.
    sql('DELETE FROM postroom_outbox WHERE seq > (SELECT min(seq) FROM postroom_outbox) + 4')
    assert is_hinted()
    stats = wait_until(lambda: not (found := admin.get('/api/v1/stats'))['capped'] and found, 'new figures')
    assert stats['pending'] == 5
    admin.stop()
