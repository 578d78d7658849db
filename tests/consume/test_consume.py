# SPDX-License-Identifier: Apache-2.0
"""postroom consume with every kind of handler, on events from stdin and on submitted jobs."""
import http.server
import json
import os
import signal
import sqlite3
import subprocess
import threading

import pytest

from conftest import PROGRAM, wait_for_signal, wait_until
from sink_files import words_in

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
QUICK = ('--base-delay', '10ms', '--max-delay', '20ms', '--poll-interval', '10ms', '--log-level', 'info')


def events(*objects):
    return ''.join(json.dumps(one) + '\n' for one in objects)


def consume(postroom, *args, lines='', **options):
    return postroom.ok('consume', '--handler', 'h', '--from', '-', *QUICK, *args, input=lines, **options)


def inbox(postroom):
    return {row['id']: row for row in postroom.ok('inbox', 'list', '--json', '--limit', '100000').objects}


@pytest.fixture
def ledger(postroom, sql):
    postroom.ok('migrate')
    sql('CREATE TABLE ledger (n INTEGER CHECK (n <> 13), id TEXT, topic TEXT, key TEXT, headers TEXT)')
    return lambda: sql('SELECT n, id, topic, key, headers FROM ledger ORDER BY rowid')


BOOK = "INSERT INTO ledger SELECT ?1 ->> 'n', ?2, ?3, ?4, ?5"


def N2_a_statement_takes_effect_once_for_each_event(postroom, ledger):
    lines = events(*({'id': f'e{n % 5}', 'topic': 't', 'payload': {'n': n % 5}} for n in range(10)))
    log = consume(postroom, '--sql', BOOK, lines=lines).err
    assert [row[0] for row in ledger()] == [0, 1, 2, 3, 4]
    assert log.count('INBOX_WORKER_SKIP_PROCESSED') == 5
    consume(postroom, '--sql', BOOK, lines=lines)
    assert len(ledger()) == 5
    assert {row['status'] for row in inbox(postroom).values()} == {'completed'}


def N1_another_handler_receives_the_same_events_once(postroom, ledger):
    lines = events({'id': 'e1', 'topic': 't', 'payload': {'n': 1}})
    consume(postroom, '--sql', BOOK, lines=lines)
    postroom.ok('consume', '--handler', 'other', '--from', '-', '--sql', BOOK, input=lines)
    assert len(ledger()) == 2


def N2_a_statement_gets_payload_id_topic_key_and_headers(postroom, ledger):
    consume(postroom, '--sql', BOOK, lines=events(
        {'id': 'e1', 'topic': 'orders', 'key': 'k1', 'headers': {'a': 'b'}, 'payload': {'n': 7}}))
    assert [row[:4] for row in ledger()] == [(7, 'e1', 'orders', 'k1')]
    assert json.loads(ledger()[0][4]) == {'a': 'b'}


def N2_failing_event_becomes_pending_and_others_are_completed(postroom, ledger):
    lines = events(*({'id': f'e{n}', 'topic': 't', 'payload': {'n': n}} for n in range(10, 20)))
    log = consume(postroom, '--sql', BOOK, '--max-attempts', '3', lines=lines).err
    assert sorted(row[0] for row in ledger()) == [n for n in range(10, 20) if n != 13]
    row = inbox(postroom)['e13']
    assert (row['status'], row['attempts'], row['payload']) == ('dead', 3, {'n': 13})
    assert 'CHECK' in row['last_error']
    assert log.count('INBOX_WORKER_DISPATCH_FAIL') == 3 and log.count('INBOX_WORKER_DEAD') == 1


def N2_dead_events_can_be_retried_after_a_fix(postroom, sql, ledger):
    lines = events({'id': 'e13', 'topic': 't', 'payload': {'n': 13}})
    consume(postroom, '--sql', BOOK, '--max-attempts', '1', lines=lines)
    assert inbox(postroom)['e13']['status'] == 'dead'
    sql('DROP TABLE ledger')
    sql('CREATE TABLE ledger (n INTEGER, id TEXT, topic TEXT, key TEXT, headers TEXT)')
    postroom.ok('inbox', 'retry', 'h', 'e13')
    postroom.ok('consume', '--handler', 'h', '--sql', BOOK, '--drain')
    assert [row[0] for row in ledger()] == [13]
    assert inbox(postroom)['e13']['status'] == 'completed'


def D6_ordered_events_wait_behind_a_failing_one_of_their_key(postroom, sql, ledger):
    lines = events(*({'id': f'e{n}', 'topic': 't', 'key': 'odd' if n % 2 else 'even', 'payload': {'n': n}}
                     for n in range(11, 19)))
    consume(postroom, '--sql', BOOK, '--ordered', '--max-attempts', '3', lines=lines)
    order = [row[0] for row in ledger()]
    assert [n for n in order if n % 2] == [11, 15, 17]
    assert [n for n in order if not n % 2] == [12, 14, 16, 18]
    assert order.index(15) > order.index(18)


def D6_messages_behind_a_blocking_dead_letter_wait_for_an_operator(postroom, sql, ledger):
    def lines(*numbers):
        return events(*({'id': f'e{n}', 'topic': 't', 'key': 'odd' if n % 2 else 'even', 'payload': {'n': n}}
                        for n in numbers))
    block = ('--sql', BOOK, '--ordered', '--on-dead', 'block', '--max-attempts', '1')
    consume(postroom, *block, lines=lines(11, 12, 13, 14, 15))
    consume(postroom, *block, lines=lines(16, 17))
    assert [row[0] for row in ledger()] == [11, 12, 14, 16]
    assert [inbox(postroom)[f'e{n}']['status'] for n in (13, 15, 17)] == ['dead', 'pending', 'pending']
    sql('UPDATE postroom_inbox SET payload = \'{"n": 113}\' WHERE id = ?', 'e13')
    postroom.ok('inbox', 'retry', 'h', 'e13')
    postroom.ok('consume', '--handler', 'h', *block, '--drain')
    assert [row[0] for row in ledger()][4:] == [15, 17, 113]


def D6_unordered_events_do_not_wait(postroom, ledger):
    lines = events(*({'id': f'e{n}', 'topic': 't', 'key': 'k', 'payload': {'n': n}} for n in range(12, 16)))
    log = consume(postroom, '--sql', BOOK, '--max-attempts', '2', lines=lines).err
    assert [row[0] for row in ledger()] == [12, 14, 15]
    assert log.index('id=e15') < log.index('INBOX_WORKER_DEAD id=e13')


def N2_event_without_an_id_is_stored_as_dead_letter(postroom, ledger):
    lines = events({'topic': 't', 'payload': {'n': 1}}, {'id': 'e2', 'topic': 't', 'payload': {'n': 2}},
                   {'id': 'x' * 10_000, 'topic': 't', 'payload': {'n': 3}})
    consume(postroom, '--sql', BOOK, lines=lines)
    assert [row[0] for row in ledger()] == [2]
    dead = [row for row in inbox(postroom).values() if row['status'] == 'dead']
    assert len(dead) == 2 and all(row['payload'] for row in dead)
    assert any('no id' in row['last_error'] for row in dead)
    assert any('1024' in row['last_error'] for row in dead)


def N2_event_id_may_be_a_header_or_a_member_of_the_payload(postroom, ledger):
    one = {'topic': 't', 'headers': {'ref': 'r1'}, 'payload': {'n': 1, 'order': {'id': 17}}}
    consume(postroom, '--sql', BOOK, '--id-header', 'ref', lines=events(one, one))
    consume(postroom, '--sql', BOOK, '--id-path', 'order.id', lines=events(one, one))
    assert [row[1] for row in ledger()] == ['r1', '17']


@pytest.mark.parametrize('statement', ['COMMIT', 'BEGIN', 'ROLLBACK', 'SAVEPOINT a', 'PRAGMA foreign_keys = on',
                                       'SELECT 1; COMMIT', "ATTACH 'x' AS x"])
def N2_a_statement_may_not_end_the_transaction(postroom, ledger, statement):
    result = postroom('consume', '--handler', 'h', '--from', '-', '--sql', statement,
                      input=events({'id': 'e1', 'topic': 't', 'payload': {}}))
    assert result.code == 2 and 'postroom: ' in result.err, result
    assert inbox(postroom) == {}


def N2_invalid_statement_is_reported_at_start(postroom, ledger):
    assert 'nowhere' in postroom.fails(2, 'consume', '--handler', 'h', '--sql', 'INSERT INTO nowhere VALUES (1)')


def N2_line_that_is_too_long_ends_intake_and_earlier_events_are_safe(postroom, ledger):
    lines = events({'id': 'e1', 'payload': {'n': 1}}) + 'x' * (65 << 20) + '\n' + events({'id': 'e2', 'payload': {'n': 2}})
    result = postroom('consume', '--handler', 'h', '--from', '-', '--sql', BOOK, input=lines)
    assert result.code == 1 and result.err.splitlines()[-1].startswith('postroom: stdin: line 2 is longer'), result
    assert [row[1] for row in ledger()] == ['e1'] and set(inbox(postroom)) == {'e1'}


def N2_read_error_on_stdin_ends_intake(postroom, tmp_path):
    directory = os.open(tmp_path, os.O_RDONLY)
    worker = postroom.start('consume', '--handler', 'h', '--from', '-', '--exec', 'true', stdin=directory)
    os.close(directory)
    _, error = worker.communicate()
    assert worker.returncode == 1 and b'postroom: stdin: line 1 cannot be read' in error, error


def D4_the_end_of_the_grace_ends_a_batch_of_slow_statements(postroom, ledger):
    slow = ("INSERT INTO ledger (id) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000) "
            "SELECT ?2 FROM c WHERE x = 3000000")
    worker = postroom.start('consume', '--handler', 'h', '--from', '-', '--sql', slow, '--shutdown-grace', '100ms',
                            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    worker.stdin.write(events(*({'id': f'e{n}', 'payload': {}} for n in range(100))).encode())
    worker.stdin.close()
    held = []

    def holds_the_lock():
        connection = sqlite3.connect(postroom.db, timeout=0)
        try:
            connection.execute('BEGIN IMMEDIATE')
            held.clear()
        except sqlite3.OperationalError:
            held.append(True)
        connection.close()
        return len(held) > 5

    wait_until(holds_the_lock, 'the batch')
    worker.terminate()
    worker.wait()
    assert ledger() == [] and inbox(postroom) == {}


def D5_drain_gives_up_on_broker_outage_and_finishes_inbox(postroom, tmp_path):
    if 'redis' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without redis')
    postroom.ok('inbox', 'submit', 'h', 'c1')
    result = postroom('consume', '--handler', 'h', '--from', 'redis://127.0.0.1:1/s', '--drain', '--exec',
                      'echo $POSTROOM_ID >> ran')
    assert result.code == 1, result
    assert 'unreachable for 30 s' in result.err.splitlines()[-1] and 'refused' in result.err.splitlines()[-1]
    assert words_in(tmp_path / 'ran') == ['c1']


@pytest.mark.skipif(not SOAK, reason='takes half a minute')
def D5_drain_gives_up_on_handler_outage_during_intake(postroom):
    worker = postroom.start('consume', '--handler', 'h', '--from', '-', '--drain', '--exec', 'exit 127',
                            '--workers', '8', '--log-level', 'error', stdin=subprocess.PIPE)
    ended = threading.Event()

    def feed():
        n = 0
        while not ended.wait(0.5):
            n += 1
            try:
                worker.stdin.write(events({'id': f'e{n}', 'payload': {}}).encode())
                worker.stdin.flush()
            except BrokenPipeError:
                return

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        wait_until(lambda: worker.poll() is not None, 'the end')
    finally:
        ended.set()
        feeder.join()
    assert worker.returncode == 1
    assert b'postroom: the sink has been unreachable for 30 s' in worker.stderr.read()


@pytest.mark.skipif(not SOAK, reason='takes a minute')
def D5_drain_gives_up_on_locked_database(postroom, tmp_path):
    os.mkfifo(tmp_path / 'gate')
    worker = postroom.start('consume', '--handler', 'h', '--from', '-', '--drain', '--exec',
                            'echo $POSTROOM_ID >> begun; read word < gate', '--log-level', 'error',
                            stdin=subprocess.PIPE)
    worker.stdin.write(events({'id': 'e1', 'payload': {}}).encode())
    worker.stdin.flush()
    wait_until(lambda: words_in(tmp_path / 'begun'), 'the command to begin')
    holder = sqlite3.connect(postroom.db, isolation_level=None)
    holder.execute('BEGIN IMMEDIATE')
    (tmp_path / 'gate').write_text('go\n')
    _, error = worker.communicate()
    holder.close()
    assert worker.returncode == 1 and b'postroom: ' in error, error


def J1_a_command_gets_the_payload_and_its_environment(postroom, tmp_path):
    consume(postroom, '--exec', 'cat > got; env | grep ^POSTROOM_ | sort > env', lines=events(
        {'id': 'e1', 'topic': 'orders', 'key': 'k1', 'headers': {'a': 'b'}, 'payload': {'n': 7}}))
    assert json.loads((tmp_path / 'got').read_text()) == {'n': 7}
    env = dict(line.split('=', 1) for line in (tmp_path / 'env').read_text().splitlines())
    assert (env['POSTROOM_ID'], env['POSTROOM_TOPIC'], env['POSTROOM_KEY']) == ('e1', 'orders', 'k1')
    assert (env['POSTROOM_HANDLER'], env['POSTROOM_DB'], env['POSTROOM_CLAIM']) == ('h', postroom.db, '1')
    assert json.loads(env['POSTROOM_HEADERS']) == {'a': 'b'}


def J1_failing_command_is_retried_until_dead(postroom, tmp_path):
    consume(postroom, '--exec', 'echo $POSTROOM_ID $POSTROOM_ATTEMPT >> tries; echo no good >&2; exit 3',
            '--max-attempts', '3', lines=events({'id': 'e1', 'topic': 't', 'payload': {}}))
    assert (tmp_path / 'tries').read_text().split('\n')[:-1] == ['e1 1', 'e1 2', 'e1 3']
    row = inbox(postroom)['e1']
    assert row['status'] == 'dead' and 'no good' in row['last_error']


def J1_a_job_submitted_twice_runs_once(postroom, tmp_path):
    run = ('consume', '--handler', 'h', '--exec', 'echo $POSTROOM_ID >> ran', '--drain')
    postroom.ok('inbox', 'submit', 'h', 'c1', '{}')
    postroom.ok('inbox', 'submit', 'h', 'c1', '{}')
    postroom.ok(*run)
    assert 'already completed' in postroom.ok('inbox', 'submit', 'h', 'c1', '{}').out
    postroom.ok(*run)
    assert words_in(tmp_path / 'ran') == ['c1']


def J1_several_workers_do_each_job_once(postroom, tmp_path):
    for n in range(30):
        postroom.ok('inbox', 'submit', 'h', f'c{n}')
    workers = [postroom.start('consume', '--handler', 'h', '--workers', '3', '--exec', 'echo $POSTROOM_ID >> ran',
                              '--drain', stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sorted(words_in(tmp_path / 'ran')) == sorted(f'c{n}' for n in range(30))


def J1_takeover_of_killed_worker_resumes_at_its_step(postroom, tmp_path):
    handler = ('postroom step one -- sh -c "echo one >> ran"; '
               'if [ $POSTROOM_ATTEMPT = 1 ]; then echo here >> here; sleep 1000; fi; '
               'postroom step two -- sh -c "echo two >> ran"')
    env = {'PATH': f'{os.path.dirname(PROGRAM)}:{os.environ["PATH"]}'}
    postroom.ok('inbox', 'submit', 'h', 'c1')
    run = ('consume', '--handler', 'h', '--lease', '10s', '--exec', handler, '--drain')
    first = postroom.start(*run, env=env, stderr=subprocess.DEVNULL)
    wait_until(lambda: words_in(tmp_path / 'here'), 'the first step')
    first.kill()
    first.wait()
    postroom.ok(*run, env=env)
    assert words_in(tmp_path / 'ran') == ['one', 'two']
    row = inbox(postroom)['c1']
    assert row['status'] == 'completed' and set(row['steps']) == {'one', 'two'}


def J3_step_longer_than_the_lease_runs_once(postroom, tmp_path):
    """A clone of a repository that takes several leases."""
    env = {'PATH': f'{os.path.dirname(PROGRAM)}:{os.environ["PATH"]}', 'HOME': str(tmp_path)}
    repository = tmp_path / 'repository'
    git = ['git', '-C', str(repository), '-c', 'user.name=t', '-c', 'user.email=t@example.org']
    subprocess.run(['git', 'init', '-q', str(repository)], check=True)
    for n in range(200):
        (repository / f'file{n}').write_bytes(os.urandom(10_000))
    subprocess.run([*git, 'add', '.'], check=True)
    subprocess.run([*git, 'commit', '-qm', 'all'], check=True)
    postroom.ok('inbox', 'submit', 'h', 'c1')
    handler = ('postroom step clone -- sh -c "echo clone >> ran; test -d copy || '
               'git clone -q --no-local repository copy; sleep 18"')
    run = ('consume', '--handler', 'h', '--lease', '8s', '--timeout', '10m', '--drain', '--exec', handler)
    both = [postroom.start(*run, env=env, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert words_in(tmp_path / 'ran') == ['clone'] and (tmp_path / 'copy' / 'file199').exists()
    assert (inbox(postroom)['c1']['status'], inbox(postroom)['c1']['attempts']) == ('completed', 1)


def J3_endless_command_is_ended_with_its_children(postroom, tmp_path):
    handler = 'trap "" TERM; sleep 1000 & echo $! > child; wait; sleep 1000'
    consume(postroom, '--exec', handler, '--timeout', '10s', '--max-attempts', '1',
            lines=events({'id': 'e1', 'topic': 't', 'payload': {}}))
    row = inbox(postroom)['e1']
    assert row['status'] == 'dead' and 'timed out' in row['last_error']
    child = int((tmp_path / 'child').read_text())
    wait_until(lambda: not os.path.exists(f'/proc/{child}'), 'the child to end')


def J3_command_that_forks_and_exits_does_not_block(postroom, tmp_path):
    consume(postroom, '--exec', 'sleep 1000 & echo $! > child; exit 0', '--timeout', '30s',
            lines=events({'id': 'e1', 'topic': 't', 'payload': {}}))
    assert inbox(postroom)['e1']['status'] == 'completed'
    os.kill(int((tmp_path / 'child').read_text()), signal.SIGKILL)


def J3_output_is_bounded(postroom):
    log = consume(postroom, '--exec', 'head -c 10000000 /dev/zero | tr "\\0" x', lines=events(
        {'id': 'e1', 'topic': 't', 'payload': {}})).err
    assert inbox(postroom)['e1']['status'] == 'completed'
    assert len(log) < 200_000 and 'dropped_bytes' in log


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.seen.append((self.headers['Idempotency-Key'], body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def web():
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.seen, server.answers = [], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def J1_post_carries_event_id_and_is_retried(postroom, web):
    if 'http' not in [line.split('\t')[0] for line in postroom.ok('sinks').lines]:
        pytest.skip('built without http')
    web.answers = [500]
    consume(postroom, '--http', f'http://127.0.0.1:{web.server_port}/hook',
            lines=events({'id': 'e1', 'topic': 't', 'payload': {'n': 1}}))
    assert [key for key, _ in web.seen] == ['e1', 'e1']
    assert json.loads(web.seen[0][1]) == {'n': 1}
    assert inbox(postroom)['e1']['status'] == 'completed'


def D4_stop_finishes_messages_in_flight(postroom, tmp_path):
    for n in range(3):
        postroom.ok('inbox', 'submit', 'h', f'c{n}')
    worker = postroom.start('consume', '--handler', 'h', '--workers', '1', '--exec',
                            'echo $POSTROOM_ID >> begun; while ! test -e go; do sleep 0.01; done; '
                            'echo $POSTROOM_ID >> ended', stderr=subprocess.DEVNULL)
    wait_until(lambda: words_in(tmp_path / 'begun'), 'a job')
    worker.send_signal(signal.SIGTERM)
    wait_for_signal(worker.pid)
    (tmp_path / 'go').touch()
    assert worker.wait() == 0
    assert words_in(tmp_path / 'ended') == words_in(tmp_path / 'begun') and len(words_in(tmp_path / 'ended')) == 1
    assert sorted(row['status'] for row in inbox(postroom).values()) == ['completed', 'pending', 'pending']
    assert {row['attempts'] for row in inbox(postroom).values() if row['status'] == 'pending'} == {0}


@pytest.mark.parametrize('args, word', [
    ((), '--handler'),
    (('--handler', 'h'), '--sql'),
    (('--handler', 'h', '--sql', 'SELECT 1', '--exec', 'true'), '--exec'),
    (('--handler', 'h', '--exec', ''), '--exec'),
    (('--handler', 'h', '--exec', 'true', '--from', 'redi://x/y'), 'redi'),
    (('--handler', 'h', '--exec', 'true', '--from', 'nonsense'), 'SCHEME'),
    (('--handler', 'h', '--http', 'ftp://x/'), 'http'),
    (('--handler', 'a\tb', '--exec', 'true'), 'control'),
    (('--handler', 'h', '--exec', 'true', '--id-path', 'a..b'), '--id-path'),
    (('--handler', 'h', '--exec', 'true', '--timeout', 'soon'), 'timeout'),
    (('--handler', 'h', '--exec', 'true', 'extra'), 'extra'),
])
def G1_usage_error_is_one_line(postroom, args, word):
    assert word in postroom.fails(2, 'consume', *args)
    assert not os.path.exists(postroom.db)
