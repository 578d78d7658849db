# SPDX-License-Identifier: Apache-2.0
import json

from api_cases import *  # noqa: F401,F403 -- the tests, with SQLite
from api_cases import serve_idle
from serving import make_dead

ENDLESS = ('CREATE VIEW endless(n) AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000000000) '
           'SELECT n FROM c')


def P1_action_that_takes_too_long_is_answered_as_busy(postroom, sql):
    make_dead(postroom, 2)
    sql(ENDLESS)
    for event in ('UPDATE', 'DELETE'):
        sql(f'CREATE TRIGGER endless_{event} BEFORE {event} ON postroom_outbox BEGIN SELECT count(*) FROM endless; END')
    admin = serve_idle(postroom)
    for action, filter in (('retry', {}), ('delete', {'status': 'dead'})):
        answer = admin('POST', f'/api/v1/outbox/{action}', {'filter': filter})
        assert (answer.code, answer.error) == (503, 'busy') and b'took too long' in answer.body, answer
    assert postroom.stats()['dead'] == 2
    admin.stop()


def U2_error_about_a_missing_index_names_it_and_the_repair(postroom, sql):
    make_dead(postroom, 1)
    admin = serve_idle(postroom)
    sql('DROP INDEX postroom_outbox_dead')
    answer = admin('POST', '/api/v1/outbox/retry', {'filter': {}})
    assert (answer.code, answer.error) == (503, 'schema'), answer
    said = answer.json['error']['message']
    assert 'no such index: postroom_outbox_dead' in said and '`postroom doctor --fix`' in said, said
    postroom.ok('doctor', '--fix')
    assert admin.post('/api/v1/outbox/retry', {'filter': {}})['done'] == 1


def P1_ill_formed_text_of_a_table_is_served_as_utf8(postroom, sql):
    """Programs that write to the file may leave bytes there that are not UTF-8."""
    postroom.ok('migrate')
    broken, text = "CAST(x'7b2261223a22ff227d' AS TEXT)", "CAST(x'61ff' AS TEXT)"
    sql(f"INSERT INTO postroom_outbox (topic, payload, key, headers) VALUES ({text}, {broken}, {text}, {broken})")
    sql(f"INSERT INTO postroom_inbox (id, handler_name, payload, checkpoint, steps, headers) "
        f"VALUES ('e', 'h', {broken}, {broken}, {broken}, {broken})")
    admin, whole = serve_idle(postroom), {'a': '\ufffd'}
    id = admin.get('/api/v1/outbox')['items'][0]['id']
    row = admin.get(f'/api/v1/outbox/{id}')
    assert (row['topic'], row['key'], row['headers'], json.loads(row['payload_text'])) == ('a\ufffd', 'a\ufffd', whole, whole)
    row = admin.get('/api/v1/inbox/h/e')
    assert (row['headers'], row['checkpoint'], row['steps']) == (whole, whole, whole)
    for path in ('outbox.ndjson', 'inbox.ndjson'):
        assert json.loads(admin('GET', f'/api/v1/{path}').body)['headers'] == whole
    assert ',"a\ufffd",'.encode() in admin('GET', '/api/v1/outbox.csv').body
    assert postroom.show(id)['headers'] == whole and postroom.show(id)['payload'] == whole
    row = postroom.ok('inbox', 'show', 'h', 'e', '--json').object
    assert (row['payload'], row['headers'], row['checkpoint'], row['steps']) == (whole, whole, whole, whole)
