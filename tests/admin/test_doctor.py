# SPDX-License-Identifier: Apache-2.0
"""The findings of the doctor in the admin API."""
import contextlib
import json
import socket
import threading

import pytest

from conftest import PATIENCE, wait_until
from serving import Admin, serve

DOCTOR = '/api/v1/doctor'
CONFIG = '''\
sinks:
%s
routes:
%s
admin: { listen: "127.0.0.1:0", token: "0123456789abcdef", read_token: "fedcba9876543210" }
'''


@pytest.fixture
def silent():
    """A server that accepts connections and never answers."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


def write_config(path, urls):
    path.write_text(CONFIG % (''.join(f'  s{n}: {{ url: "{url}" }}\n' for n, url in enumerate(urls)),
                              ''.join(f'  - {{ topic: "t{n}", sink: s{n} }}\n' for n in range(len(urls)))))


def start(postroom, path, urls):
    write_config(path, urls)
    admin = Admin(postroom.start('relay', '-c', path), '0123456789abcdef')
    wait_until(lambda: admin('GET', '/readyz').code == 200, 'the relay to be ready')
    return admin


def by_check(answer):
    return {item['check']: item for item in answer['items']}


def silent_url(listener):
    return f'redis://127.0.0.1:{listener.getsockname()[1]}/orders'


def P1_doctor_has_the_findings_of_the_command(postroom, sql, tmp_path):
    postroom.ok('migrate')
    sql('DROP TRIGGER postroom_outbox_headers')
    admin = start(postroom, tmp_path / 'c.yaml', ['null:', 'exec:true'])
    answer = admin.get(DOCTOR)
    assert set(answer) == {'items', 'checked_at'}
    found = postroom('doctor', '-c', tmp_path / 'c.yaml', '--json')
    expected = [json.loads(line) for line in found.out.splitlines()]
    # A figure in a detail may change between the two.
    assert [(one['check'], one['level'], one['title'], one['advice'], one['command']) for one in answer['items']] == \
        [(one['check'], one['level'], one['title'], one['advice'], one['command']) for one in expected]
    assert by_check(answer)['objects']['level'] == 'problem'
    admin.stop()


def P1_doctor_reads_the_options_of_the_relay(postroom):
    admin = serve(postroom, '--to', 'exec:/nowhere/program')
    assert by_check(admin.get(DOCTOR))['sink:to']['level'] == 'problem'
    admin.stop()


def P1_doctor_of_a_consumer_checks_the_database(postroom, sql):
    postroom.ok('migrate')
    sql('DROP TRIGGER postroom_outbox_headers')
    admin = serve(postroom, '--handler', 'h', '--exec', 'true', command='consume')
    found = by_check(admin.get(DOCTOR))
    assert found['objects']['level'] == 'problem' and found['database']['level'] == 'ok'
    assert not [check for check in found if check.startswith('sink:')]
    admin.stop()


def P1_findings_are_kept_for_a_while(postroom, tmp_path):
    path = tmp_path / 'c.yaml'
    admin = start(postroom, path, ['null:'])
    first = admin.get(DOCTOR)
    write_config(path, ['null:', 'null:'])
    assert admin.get(DOCTOR) == first
    admin.stop()


def P1_doctor_reports_a_configuration_that_a_reload_would_refuse(postroom, tmp_path):
    path = tmp_path / 'c.yaml'
    admin = start(postroom, path, ['null:'])
    path.write_text('sinks: { out: { url: "null:", linger: 1 } }\n')
    found = by_check(admin.get(DOCTOR))
    assert found['configuration']['level'] == 'problem' and 'linger' in found['configuration']['title']
    assert found['sink:s0']['level'] == 'ok'  # as it was started
    admin.stop()


def P1_reader_may_ask_the_doctor(postroom, tmp_path):
    admin = start(postroom, tmp_path / 'c.yaml', ['null:'])
    assert admin('GET', DOCTOR, token='fedcba9876543210').code == 200
    assert admin('GET', DOCTOR, token='x').error == 'unauthorized'
    assert admin('POST', DOCTOR).error == 'method_not_allowed'
    assert admin('GET', DOCTOR + '?fix=1').error == 'unknown_parameter'
    admin.stop()


def P1_silent_sinks_delay_only_the_doctor(postroom, tmp_path, silent):
    """Together the sinks take longer than a connection may be idle."""
    admin = start(postroom, tmp_path / 'c.yaml', [silent_url(silent)] * 3)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(admin.get(DOCTOR))) for _ in range(2)]
    for thread in threads:
        thread.start()
    with silent.accept()[0]:
        for path in ('/livez', '/readyz', '/metrics', '/api/v1/stats', '/api/v1/outbox'):
            assert admin('GET', path).code == 200
        assert not answers
        for thread in threads:
            thread.join()
    assert answers[0] == answers[1]
    found = by_check(answers[0])
    assert [found[f'sink:s{n}']['level'] for n in range(3)] == ['problem'] * 3
    admin.stop()


def P1_request_in_progress_is_not_ended_for_new_connections(postroom, tmp_path, silent):
    admin = start(postroom, tmp_path / 'c.yaml', [silent_url(silent)])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(admin.get(DOCTOR)))
    thread.start()
    with silent.accept()[0]:
        for _ in range(3):
            held = [admin.connect() for _ in range(100)]
            for connection in held:
                connection.close()
        thread.join()
    assert by_check(answers[0])['sink:s0']['level'] == 'problem'
    admin.stop()


def P1_stop_ends_the_checks(postroom, tmp_path, silent):
    admin = start(postroom, tmp_path / 'c.yaml', [silent_url(silent)] * 20)
    answers = []

    def ask():
        with contextlib.suppress(OSError):
            answers.append(admin('GET', DOCTOR))
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    with silent.accept()[0]:
        admin.stop()
    for thread in threads:
        thread.join()
    assert all((answer.code, answer.error) == (503, 'stopping') for answer in answers)
