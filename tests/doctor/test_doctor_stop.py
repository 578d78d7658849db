# SPDX-License-Identifier: Apache-2.0
"""A signal ends postroom doctor in the middle of a check. It prints what it found, and skips the rest."""
import json
import shutil
import signal
import socket
import tempfile

import pytest

from conftest import PATIENCE, Postroom

STOPPED = 'Doctor was stopped before this check ended.'


@pytest.fixture
def silent():
    """A server that accepts connections and never answers."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


@pytest.fixture
def broken(postroom, sql, tmp_path, silent):
    """A database with a problem, a silent sink, and a sink after it."""
    postroom.ok('migrate')
    sql('DROP TRIGGER postroom_outbox_headers')
    (tmp_path / 'postroom.yaml').write_text(
        f'sinks:\n  a: {{ url: "redis://127.0.0.1:{silent.getsockname()[1]}/orders" }}\n  b: {{ url: "null:" }}\n'
        'routes:\n  - { topic: "orders", sink: a }\n  - { topic: "*", sink: b }\n')
    return postroom


def interrupt(process, listener, number):
    """While the program waits for an answer."""
    connection, _ = listener.accept()
    with connection:
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and b'a signal ended it' in err, (process.returncode, out, err)
    return out.decode()


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def U2_signal_skips_running_and_later_checks_and_keeps_findings(broken, silent, number):
    out = interrupt(broken.start('doctor', '--json', '-c', 'postroom.yaml'), silent, number)
    found = {one['check']: one for one in map(json.loads, out.splitlines())}
    assert found['objects']['level'] == 'problem' and 'postroom_outbox_headers' in found['objects']['title']
    assert found['schema']['level'] == 'ok'
    assert [(found[name]['level'], found[name]['detail']) for name in ('sink:a', 'sink:b')] == [('skipped', STOPPED)] * 2


def U2_interrupted_text_has_findings_and_counts_skipped_checks(broken, silent):
    out = interrupt(broken.start('doctor', '-c', 'postroom.yaml'), silent, signal.SIGINT)
    assert 'postroom_outbox_headers is missing' in out and 'Not checked' not in out
    assert out.splitlines()[-1].startswith('1 problem, 2 skipped checks; '), out


def U2_signal_ends_the_wait_for_a_silent_database_server(tmp_path):
    directory = tempfile.mkdtemp()
    waiting = Postroom(f'postgres://user@/none?host={directory}', tmp_path)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f'{directory}/.s.PGSQL.5432')
            listener.listen()
            listener.settimeout(PATIENCE)
            out = interrupt(waiting.start('doctor', '--json'), listener, signal.SIGINT)
    finally:
        waiting.end()
        shutil.rmtree(directory)
    found = {one['check']: one for one in map(json.loads, out.splitlines())}
    assert (found['database']['level'], found['database']['detail']) == ('skipped', STOPPED)
