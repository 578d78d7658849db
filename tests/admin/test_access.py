# SPDX-License-Identifier: Apache-2.0
"""Who may do what."""
import pytest

from conftest import wait_until
from serving import make_dead, serve

SECRETS = {'POSTROOM_ADMIN_TOKEN': 'all-1234', 'POSTROOM_ADMIN_READ_TOKEN': 'read-5678'}
READS = ['/healthz', '/metrics', '/api/v1/openapi.json', '/api/v1/stats', '/api/v1/topics', '/api/v1/sinks',
         '/api/v1/workers', '/api/v1/outbox', '/api/v1/outbox.csv', '/api/v1/outbox.ndjson',
         '/api/v1/outbox/groups', '/api/v1/inbox']
OPEN = ['/livez', '/', '/app.js', '/app.css']
ID = '01900000-0000-7000-8000-000000000000'
CHANGES = [('POST', '/api/v1/outbox/retry'), ('POST', '/api/v1/outbox/delete'),
           ('POST', f'/api/v1/outbox/{ID}/retry'), ('DELETE', f'/api/v1/outbox/{ID}'),
           ('POST', '/api/v1/inbox/retry'), ('POST', f'/api/v1/inbox/h/{ID}/retry'),
           ('DELETE', f'/api/v1/inbox/h/{ID}'), ('POST', '/api/v1/inbox/delete')]


@pytest.fixture
def guarded(postroom):
    return serve(postroom, '--to', 'null:', env=SECRETS)


def P1_requests_without_token_are_refused(guarded):
    for path in READS:
        for token in ('', 'wrong', 'all-123', 'all-12345', 'ALL-1234'):
            answer = guarded('GET', path, token=token)
            assert (answer.code, answer.error) == (401, 'unauthorized'), (path, token, answer)
            assert answer.headers['WWW-Authenticate'].startswith('Bearer')
    for method, path in CHANGES:
        assert guarded(method, path, '{}', token='').code == 401
    for path in OPEN:
        assert guarded('GET', path, token='').code == 200
    # Paths are not to be found out either.
    assert guarded('GET', '/api/v1/secret', token='').code == 401
    assert guarded('PUT', '/api/v1/outbox', token='').code == 401
    assert guarded('GET', '/api/v1/outbox?page=-1', token='').code == 401


def P1_both_tokens_read_and_only_one_changes(guarded):
    for path in READS:
        for token in ('all-1234', 'read-5678'):
            assert guarded('GET', path, token=token).code == 200, path
    for method, path in CHANGES:
        refused = guarded(method, path, '{}', token='read-5678')
        assert (refused.code, refused.error) == (403, 'read_only'), path
        assert guarded(method, path, '{}', token='all-1234').code in (400, 404), path
    assert guarded.get('/api/v1/stats', token='all-1234')['read_only'] is False
    assert guarded.get('/api/v1/stats', token='read-5678')['read_only'] is True


@pytest.mark.parametrize('value', ['all-1234', 'Basic all-1234', 'Bearer', 'Bearer ', 'Bearer  all-1234', 'bearerall-1234'])
def P1_authorization_must_be_bearer_token(guarded, value):
    assert guarded('GET', '/api/v1/stats', headers={'Authorization': value}).code == 401


def P1_repeated_authorization_is_refused(guarded):
    answer = guarded.raw(b'GET /api/v1/stats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\n'
                         b'Authorization: Bearer all-1234\r\nConnection: close\r\n\r\n')
    assert answer.startswith(b'HTTP/1.1 400') and b'"bad_header"' in answer


def P1_read_only_server_refuses_every_change(postroom):
    admin = serve(postroom, '--to', 'null:', env={**SECRETS, 'POSTROOM_ADMIN_READ_ONLY': 'true'})
    for method, path in CHANGES:
        answer = admin(method, path, '{}', token='all-1234')
        assert (answer.code, answer.error) == (403, 'read_only'), path
    assert admin.get('/api/v1/stats', token='all-1234')['read_only'] is True


def P1_foreign_host_is_refused_without_token(postroom):
    admin = serve(postroom, '--to', 'null:')
    for host in ('evil.example', 'evil.example:80', 'localhost.evil.example', '10.0.0.1', '127.0.0.1.nip.io', '[::2]',
                 'localhost:80x', '', '[::1', '127.0.0.1:123456789'):
        for path in ('/livez', '/', '/api/v1/stats', '/nothing'):
            answer = admin('GET', path, headers={'Host': host})
            assert answer.code in (400, 403), (host, answer)
    for host in ('localhost', 'LOCALHOST:1', '127.0.0.1', '127.9.9.9:80', '[::1]', '[::1]:8025'):
        assert admin('GET', '/livez', headers={'Host': host}).code == 200, host
    assert admin.raw(b'GET /livez HTTP/1.0\r\n\r\n').startswith(b'HTTP/1.')


def P1_requests_of_foreign_pages_are_refused(postroom):
    admin = serve(postroom, '--to', 'null:')
    ours = f'http://127.0.0.1:{admin.port}'
    foreign = [{'Origin': 'http://evil.example'}, {'Origin': 'null'}, {'Origin': f'http://127.0.0.1:{admin.port + 1}'},
               {'Origin': f'{ours}.evil.example'}, {'Origin': ''}, {'Sec-Fetch-Site': 'cross-site'},
               {'Sec-Fetch-Site': 'same-site'}, {'Origin': ours, 'Sec-Fetch-Site': 'cross-site'},
               {'Origin': 'http://evil.example', 'Sec-Fetch-Site': 'same-origin'},
               {'Origin': 'null', 'Sec-Fetch-Site': 'none'}, {'Origin': ours, 'Sec-Fetch-Site': ''}]
    for headers in foreign:
        for method, path in CHANGES:
            answer = admin(method, path, '{}', headers=headers)
            assert (answer.code, answer.error) == (403, 'forbidden_origin'), (headers, path)
    for headers in ({}, {'Origin': ours}, {'Sec-Fetch-Site': 'same-origin'}, {'Sec-Fetch-Site': 'none'},
                    {'Origin': ours, 'Sec-Fetch-Site': 'same-origin'}):
        assert admin('POST', '/api/v1/outbox/retry', {'filter': {}}, headers=headers).code == 200, headers
    # Reading is left to the browser, which shows the answer to no foreign page.
    answer = admin('GET', '/api/v1/stats', headers={'Origin': 'http://evil.example'})
    assert answer.code == 200 and answer.headers['Access-Control-Allow-Origin'] is None


@pytest.mark.parametrize('setting, token, shown', [
    ('always', 'all-1234', True), ('always', 'read-5678', True), ('admin', 'all-1234', True),
    ('admin', 'read-5678', False), ('never', 'all-1234', False), ('never', 'read-5678', False)])
def P1_show_payloads_setting_decides_which_role_sees_payloads(postroom, setting, token, shown):
    postroom.enqueue('t', '{"secret": 12345678901234567890}', '--header', 'card=4111', '--delay', '1h')
    admin = serve(postroom, '--to', 'null:', env={**SECRETS, 'POSTROOM_ADMIN_SHOW_PAYLOADS': setting})
    id = admin.get('/api/v1/outbox', token=token)['items'][0]['id']
    row = admin.get(f'/api/v1/outbox/{id}', token=token)
    assert row['payload_hidden'] is not shown
    assert row['payload_text'] == ('{"secret": 12345678901234567890}' if shown else None)
    assert row['headers'] == ({'card': '4111'} if shown else {})
    assert admin.get('/api/v1/stats', token=token)['show_payloads'] is shown
    for path in (f'/api/v1/outbox/{id}', '/api/v1/outbox', '/api/v1/outbox.ndjson', '/api/v1/outbox.csv'):
        body = admin('GET', path, token=token).body
        assert (b'12345678901234567890' in body) == (shown and path not in ('/api/v1/outbox', '/api/v1/outbox.csv'))


def P1_answers_carry_headers_against_misuse(postroom):
    admin = serve(postroom, '--to', 'null:')
    for path in ('/', '/app.js', '/api/v1/stats', '/livez', '/nothing'):
        headers = admin('GET', path).headers
        assert headers['X-Content-Type-Options'] == 'nosniff'
        assert headers['Referrer-Policy'] == 'no-referrer'
        assert headers['Cache-Control'] == 'no-store'
        assert "default-src 'none'" in headers['Content-Security-Policy']
        assert "frame-ancestors 'none'" in headers['Content-Security-Policy']
    policy = admin('GET', '/').headers['Content-Security-Policy']
    assert "script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'" in policy
    assert 'unsafe' not in policy and '*' not in policy
    assert 'script-src' not in admin('GET', '/api/v1/stats').headers['Content-Security-Policy']


@pytest.mark.parametrize('listen', ['0.0.0.0:0', '[::]:0', '192.0.2.1:0'])
def P1_public_address_needs_token(postroom, listen):
    said = postroom.fails(2, 'relay', '--to', 'null:', '--admin', listen)
    assert 'token' in said and listen in said


def P1_public_address_is_served_with_token(postroom):
    admin = serve(postroom, '--to', 'null:', token='t-1', env={'POSTROOM_ADMIN_TOKEN': 't-1'}, listen='0.0.0.0:0')
    assert admin('GET', '/api/v1/stats', headers={'Host': 'relay.example'}).code == 200


@pytest.mark.parametrize('listen', ['8025', 'localhost', ':8025', '127.0.0.1:', '127.0.0.1:65536', 'relay.example:80',
                                    '::1:80', '[127.0.0.1]:80', '127.0.0.1:80 ', '127.0.0.1:-1'])
def P1_wrong_address_is_refused(postroom, listen):
    assert 'ADDR:PORT' in postroom.fails(2, 'relay', '--to', 'null:', '--admin', listen)


@pytest.mark.parametrize('token', ['trailing ', ' leading', 'two words', 'tab\t', 'umlaut-ü', 'x' * 1025])
def P1_wrong_token_is_refused_at_the_start(postroom, token):
    said = postroom.fails(2, 'relay', '--to', 'null:', '--admin', '127.0.0.1:0', env={'POSTROOM_ADMIN_TOKEN': token})
    assert 'admin.token' in said and token not in said


def P1_equal_tokens_are_refused(postroom):
    said = postroom.fails(2, 'relay', '--to', 'null:', '--admin', '127.0.0.1:0',
                          env={'POSTROOM_ADMIN_TOKEN': 'same', 'POSTROOM_ADMIN_READ_TOKEN': 'same'})
    assert 'read_token' in said and 'same"' not in said


def P1_port_in_use_is_refused(postroom):
    admin = serve(postroom, '--to', 'null:')
    said = postroom.fails(2, 'relay', '--to', 'null:', '--admin', f'127.0.0.1:{admin.port}')
    assert f'127.0.0.1:{admin.port}' in said and 'in use' in said


def P1_actions_are_logged_with_filter_count_and_actor(postroom):
    make_dead(postroom, 3)
    admin = serve(postroom, '--to', 'null:', '--topic', 'none', token='all-1234', env=SECRETS)
    id = admin.get('/api/v1/outbox')['items'][0]['id']
    admin.post('/api/v1/outbox/retry', {'filter': {'topic': 'orders.*'}, 'dry_run': True})
    admin.post(f'/api/v1/outbox/{id}/retry')
    admin.post('/api/v1/outbox/delete', {'filter': {'status': 'dead', 'topic': 'orders.*'}})
    lines = wait_until(lambda: admin.logged('OUTBOX_OPERATOR_ACTION')[1:] and admin.logged('OUTBOX_OPERATOR_ACTION'))
    assert len(lines) == 2, lines
    assert f'action=retry filter="table=outbox status=dead id={id}" count=1 actor=token' in lines[0]
    assert 'action=delete filter="table=outbox status=dead topic=orders.*" count=2 actor=token' in lines[1]
    metrics = admin('GET', '/metrics').body.decode()
    assert 'postroom_operator_actions_total{action="retry"} 1' in metrics
    assert 'postroom_operator_actions_total{action="delete"} 2' in metrics
    assert 'all-1234' not in '\n'.join(admin.lines) + metrics
