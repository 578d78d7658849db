# SPDX-License-Identifier: Apache-2.0
"""Every wrong request has one clear answer, and the server stays."""
import pytest

from conftest import wait_until
from serving import answers, serve

ID = '01900000-0000-7000-8000-000000000000'


def short(value):
    """As a name of a test: the input itself may be long."""
    return repr(value)[:40]


@pytest.fixture
def admin(postroom):
    return serve(postroom, '--to', 'null:')


@pytest.mark.parametrize('path', ['/nothing', '/api', '/api/v1', '/api/v1/', '/api/v2/outbox', '/api/v1/outbox/', '//',
                                  f'/api/v1/outbox/{ID}/', f'/api/v1/outbox/{ID}/x', '/api/v1/inbox/h/', '/..', '/../etc/passwd',
                                  '/%2e%2e/', '/app.js/', '/index.htm', '/a/b/c/d/e/f/g/h/i/j/k/l'], ids=short)
def P1_unknown_path_is_not_found(admin, path):
    answer = admin('GET', path)
    assert (answer.code, answer.error) == (404, 'not_found')


@pytest.mark.parametrize('method, path, allow', [
    ('PUT', '/api/v1/outbox', 'GET, HEAD'), ('POST', '/api/v1/stats', 'GET, HEAD'), ('OPTIONS', '/livez', 'GET, HEAD'),
    ('PATCH', f'/api/v1/outbox/{ID}', 'GET, HEAD, DELETE'), ('GET', '/api/v1/outbox/retry', 'POST'),
    ('DELETE', '/api/v1/outbox/groups', 'GET, HEAD'), ('GET', f'/api/v1/outbox/{ID}/retry', 'POST'),
    ('BREW', '/', 'GET, HEAD'), ('TRACE', '/api/v1/outbox', 'GET, HEAD')], ids=short)
def P1_wrong_method_is_refused_with_the_right_ones(admin, method, path, allow):
    answer = admin(method, path)
    assert (answer.code, answer.error, answer.headers['Allow']) == (405, 'method_not_allowed', allow)


@pytest.mark.parametrize('query, code', [
    ('x=1', 'unknown_parameter'), ('Topic=a', 'unknown_parameter'), ('handler=a', 'unknown_parameter'),
    ('page=-1', 'bad_parameter'), ('page=0', 'bad_parameter'), ('page=1e1', 'bad_parameter'), ('page=%201', 'bad_parameter'),
    ('page=99999999999999999999', 'bad_parameter'), ('page_size=201', 'bad_parameter'), ('page_size=0', 'bad_parameter'),
    ('page=2001', 'bad_parameter'), ('status=unknown', 'bad_parameter'), ('status=DEAD', 'bad_parameter'),
    ('status=active', 'bad_parameter'), ('tenant=x', 'bad_parameter'), ('id=1', 'bad_parameter'), ('after=1', 'bad_parameter'),
    ('created_from=yesterday', 'bad_parameter'), ('created_from=2026-02-30', 'bad_parameter'),
    ('created_to=2026-01-01T00:00', 'bad_parameter'), ('created_to=2026-01-01T00:00:00', 'bad_parameter'),
    ('created_to=99999-01-01', 'bad_parameter'), ('topic=%', 'bad_parameter'), ('topic=%4', 'bad_parameter'),
    ('topic=%zz', 'bad_parameter'), ('topic=a%00b', 'bad_parameter'), ('topic=%ff', 'bad_parameter'),
    ('topic=%c0%80', 'bad_parameter'), ('%ff=1', 'bad_parameter'), ('=1', 'bad_parameter'), ('topic=a&topic=a', 'bad_parameter'),
    ('topic=' + 'a' * 10240, 'bad_parameter'), ('error=' + 'a' * 1025, 'bad_parameter'),
    (f'after={ID}&page=2', 'bad_parameter')], ids=short)
def P1_wrong_parameter_is_refused(admin, query, code):
    answer = admin('GET', f'/api/v1/outbox?{query}')
    assert (answer.code, answer.error) == (400, code), answer
    assert len(answer.body) < 1000


def P1_parameters_where_none_belong_are_refused(admin):
    for path in ('/api/v1/stats?x=1', f'/api/v1/outbox/{ID}?x', '/livez?verbose', '/?a=b'):
        answer = admin('GET', path)
        assert (answer.code, answer.error) == (400, 'unknown_parameter'), path
    assert admin('POST', '/api/v1/outbox/retry?topic=a', {'filter': {}}).error == 'unknown_parameter'


@pytest.mark.parametrize('path', ['/%', '/%00', '/api/v1/outbox/%00', '/%ff', '/api/v1/outbox/%c0%af', '/%zz'], ids=short)
def P1_wrong_path_encoding_is_refused(admin, path):
    answer = admin('GET', path)
    assert (answer.code, answer.error) == (400, 'bad_path')


@pytest.mark.parametrize('body, code', [
    ('', 'bad_body'), ('x', 'bad_body'), ('[]', 'bad_body'), ('null', 'bad_body'), ('{}', 'bad_body'),
    ('{"filter":[]}', 'bad_body'), ('{"filter":"dead"}', 'bad_body'), ('{"filter":{}', 'bad_body'),
    ('{"filter":{}}x', 'bad_body'), ('{"filter":{"topic":["a"]}}', 'bad_body'), ('{"filter":{"topic":{}}}', 'bad_body'),
    # A variable of a script that has no value must not widen an action to all messages.
    ('{"filter":{"topic":""}}', 'bad_body'), ('{"filter":{"topic":null}}', 'bad_body'), ('{"filter":{"created_to":""}}', 'bad_body'),
    ('{"filter":{"fingerprint":""}}', 'bad_body'), ('{"filter":{"topik":null}}', 'unknown_parameter'),
    ('{"filter":{"topic":true}}', 'bad_body'), ('{"filter":{},"limit":0}', 'bad_body'), ('{"filter":{},"limit":10001}', 'bad_body'),
    ('{"filter":{},"limit":-1}', 'bad_body'), ('{"filter":{},"limit":"1"}', 'bad_body'), ('{"filter":{},"limit":1.5}', 'bad_body'),
    ('{"filter":{},"limit":1e3}', 'bad_body'), ('{"filter":{},"rate":0}', 'bad_body'), ('{"filter":{},"dry_run":1}', 'bad_body'),
    ('{"filter":{},"dry_run":null}', 'bad_body'), ('{"filter":{},"filter":{}}', 'bad_body'),
    ('{"filter":{"topic":"\\u0000"}}', 'bad_body'), ('{"filter":{"topic":"\\ud800"}}', 'bad_body'), (b'{"filter":{"topic":"\xff"}}', 'bad_body'),
    (b'\xef\xbb\xbf{"filter":{}}', 'bad_body'), ('{"filters":{}}', 'unknown_parameter'), ('{"filter":{"topik":"a"}}', 'unknown_parameter'),
    ('{"filter":{"page":1}}', 'unknown_parameter'), ('{"filter":{"topic":"a","topic":"b"}}', 'bad_parameter'),
    ('{"filter":{"topic":"' + 'a' * 10240 + '"}}', 'bad_parameter'), ('{"filter":{"tenant":"x"}}', 'bad_parameter'),
    ('[' * 60000, 'bad_body'), ('{"filter":' * 6000, 'bad_body'), ('{"filter":{"topic":' + '[' * 900 + ']' * 900 + '}}', 'bad_body')], ids=short)
def P1_wrong_body_is_refused(admin, body, code):
    answer = admin('POST', '/api/v1/outbox/retry', body)
    assert (answer.code, answer.error) == (400, code), answer


def P1_large_body_is_refused(admin):
    answer = admin('POST', '/api/v1/outbox/retry', '[' * 1000000)
    assert (answer.code, answer.error) == (413, 'body_too_large')
    # Only its length is sent: one that is too long to be read is not waited for.
    head = b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n'
    for length in (b'4194305', b'99999999999', b'18446744073709551615'):
        assert admin.raw(head % length).split()[1] in (b'413', b'400')


def P1_large_chunked_body_is_refused(admin):
    chunk = b'1000\r\n' + b'[' * 4096 + b'\r\n'
    answer = admin.raw(b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n'
                       b'Connection: close\r\n\r\n' + chunk * 17 + b'0\r\n\r\n')
    assert answer.startswith(b'HTTP/1.1 413') and b'"body_too_large"' in answer


def P1_body_beyond_its_content_length_is_not_read(admin):
    body = b'{"filter":{},"dry_run":true}'
    answer = admin.raw(b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n'
                       % len(body) + body + b'{"filter":{}}\r\n\r\n')
    assert answer.startswith(b'HTTP/1.1 200')
    assert answer.count(b'HTTP/1.1 200') == 1
    # And one that is shorter is never used.
    answer = admin.raw(b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n' + body)
    assert b'"matched"' not in answer


def P1_body_is_refused_where_none_belongs(admin):
    answer = admin('POST', f'/api/v1/outbox/{ID}/retry', '{"filter":{}}')
    assert (answer.code, answer.error) == (400, 'bad_body')
    assert admin('POST', f'/api/v1/outbox/{ID}/retry', b'{}\0{"filter":{}}').code == 400
    assert admin('POST', f'/api/v1/outbox/{ID}/retry', '{}').code == 404
    assert admin('GET', '/livez', 'x').code == 400


@pytest.mark.parametrize('data', [
    b'\r\n\r\n', b'GET\r\n\r\n', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', b'GET / HTTP/9.9\r\n\r\n', b'\0' * 1000,
    b'GET http://evil/ HTTP/1.1\r\nHost: localhost\r\n\r\n', b'GET * HTTP/1.1\r\nHost: localhost\r\n\r\n',
    b'GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n',
    b'GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', b'GET /livez HTTP/1.1\r\n\r\n',
    b'GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n', b'GET /' + b'a' * 100000,
    b'GET /livez HTTP/1.1\r\nHost: localhost\r\n' + b'X: y\r\n' * 20000 + b'\r\n',
    b'GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ' + b'y' * 100000 + b'\r\n\r\n',
    b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
    b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n'], ids=short)
def P1_malformed_requests_are_refused_safely(admin, data):
    answer = admin.raw(data)
    assert not answer.startswith(b'HTTP/1.1 200'), answer
    assert admin.get('/livez')['status'] == 'ok'


def P1_requests_may_share_a_connection(admin):
    request = b'GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n'
    answer = admin.raw(request * 20 + b'GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
    assert answer.count(b'HTTP/1.1 200') == 21


def P1_disconnecting_client_does_not_affect_others(admin):
    for data in (b'GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n', b'GET /api/v1/outbox.ndjson HTTP/1.1\r\nHost: localhost\r\n\r\n',
                 b'POST /api/v1/outbox/retry HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{'):
        for _ in range(20):
            admin.connect().close()
            with admin.connect() as connection:
                connection.sendall(data)
    wait_until(lambda: answers(admin), 'the server to answer')


@pytest.mark.parametrize('url, said', [('http://127.0.0.1:1', 'http://127.0.0.1:1/healthz'), ('http://', 'http')], ids=short)
def H1_health_reports_an_unreachable_relay(postroom, url, said):
    assert said in postroom.fails(1, 'health', url)


def H1_health_refuses_an_unknown_scheme(postroom):
    assert 'nonsense' in postroom.fails(2, 'health', 'nonsense://x')


def H1_health_takes_its_token_from_the_environment(postroom):
    admin = serve(postroom, '--to', 'null:', token='abc', env={'POSTROOM_ADMIN_TOKEN': 'abc'})
    url = f'http://127.0.0.1:{admin.port}'
    assert 'POSTROOM_ADMIN_TOKEN' in postroom.fails(1, 'health', url)
    assert 'POSTROOM_ADMIN_TOKEN' in postroom.fails(1, 'health', url, env={'POSTROOM_ADMIN_TOKEN': 'x'})
    assert postroom.ok('health', url, env={'POSTROOM_ADMIN_TOKEN': 'abc'}).out == 'healthy\n'
