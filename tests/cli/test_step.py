# SPDX-License-Identifier: Apache-2.0
"""postroom step and postroom checkpoint, inside a handler as `postroom consume` would run it."""
import os
import re
import shlex
import signal
import sqlite3
import subprocess

import pytest

from conftest import PATIENCE, PROGRAM, wait_until

WORKER = '0f5a3c1e-7b2d-4e9a-8c11-2233445566aa'


class Handler:
    """handler('step', 'a', '--', 'true') runs postroom as a part of the handler of job j-1."""

    def __init__(self, postroom, sql):
        self.postroom, self.sql, self.claim = postroom, sql, 0
        postroom.ok('inbox', 'submit', 'import', 'j-1', '{"n": 1}')
        self.begin()

    def begin(self):
        """The job is claimed (again)."""
        self.claim += 1
        self.sql("UPDATE postroom_inbox SET status = 'active', locked_by = ?, locked_until = created_at, claims = ?",
                 WORKER, self.claim)

    @property
    def environment(self):
        return {'POSTROOM_HANDLER': 'import', 'POSTROOM_ID': 'j-1', 'POSTROOM_CLAIM': str(self.claim),
                'POSTROOM_SCHEMA': '', 'PATH': os.path.dirname(PROGRAM) + ':' + os.environ['PATH']}

    def __call__(self, *args, **options):
        return self.postroom(*args, env=self.environment, **options)

    def ok(self, *args, **options):
        return self.postroom.ok(*args, env=self.environment, **options)

    def fails(self, code, *args, **options):
        return self.postroom.fails(code, *args, env=self.environment, **options)

    def start(self, *args, **options):
        return self.postroom.start(*args, env=self.environment, **options)

    def script(self, text):
        """The handler itself, a shell script."""
        return subprocess.run(['sh', '-c', text], cwd=self.postroom.cwd, stdout=subprocess.PIPE,
                              env=self.postroom.environment(self.environment), text=True, check=False)

    def steps(self):
        return {step['name']: step['result'] for step in self.ok('step', '--show', '--json').objects}


@pytest.fixture
def handler(postroom, sql):
    return Handler(postroom, sql)


def gone(path):
    """Whether the process whose number a command has written there is no more."""
    try:
        with open(f'/proc/{int(path.read_text())}/stat', encoding='utf-8') as file:
            return file.read().rpartition(')')[2].split()[0] == 'Z'
    except (FileNotFoundError, ProcessLookupError):
        return True


def written(path):
    return path.exists() and path.read_text().endswith('\n')


def J2_step_runs_once_and_its_output_is_repeated(handler, tmp_path):
    command = ['step', 'make', '--', 'sh', '-c', 'echo it is "$1"; echo aside >&2; echo . >> done', '--', 'so']
    for said in ('aside\n', ''):
        result = handler.ok(*command)
        assert (result.out, result.err) == ('it is so\n', said)
    assert (tmp_path / 'done').read_text() == '.\n'


def J2_job_resumes_after_its_last_finished_step(handler, tmp_path):
    job = '''
        a=$(postroom step a -- sh -c 'echo a >> done; echo one') || exit
        b=$(postroom step b -- sh -c 'echo b >> done; echo two') || exit
        [ -e healed ] || { touch healed; kill -9 $$; }
        postroom step c -- sh -c 'echo c >> done; echo three' || exit
        echo "$a $b"
    '''
    assert handler.script(job).returncode == -signal.SIGKILL
    handler.begin()
    again = handler.script(job)
    assert (again.returncode, again.stdout) == (0, 'three\none two\n')
    assert (tmp_path / 'done').read_text() == 'a\nb\nc\n'


def J2_a_command_has_the_streams_of_its_handler(handler):
    assert handler.ok('step', 'copy', '--', 'cat', input='in').out == 'in'
    assert handler.ok('step', 'mute', '--', 'true').out == ''
    assert handler.steps() == {'copy': 'in', 'mute': ''}


@pytest.mark.parametrize('command, code', [
    ('exit 3', 3), ('exit 65', 65), ('exit 255', 255), ('kill -9 $$', 137), ('exec no-such-command-here', 127)])
def J2_failed_step_returns_its_status_and_is_not_recorded(handler, command, code):
    result = handler('step', 'a', '--', 'sh', '-c', f'echo tried; {command}')
    assert (result.code, result.out) == (code, 'tried\n')
    assert handler.steps() == {}


def J2_command_that_cannot_start_reports_why(handler, tmp_path):
    result = handler('step', 'a', '--', 'no-such-command-here')
    assert (result.code, result.err) == (127, 'no-such-command-here cannot be started: it was not found\n')
    (tmp_path / 'text').write_text('no program')
    result = handler('step', 'a', '--', './text')
    assert (result.code, result.err) == (126, './text cannot be started: it may not be executed\n')
    assert handler.steps() == {}


def J2_binary_output_is_repeated_byte_by_byte(handler):
    command = ['step', 'a', '--', 'printf', r'a\0b\377\n']
    for _ in range(2):
        done = subprocess.run([PROGRAM, *command], stdout=subprocess.PIPE, check=True,
                              env=handler.postroom.environment(handler.environment))
        assert done.stdout == b'a\0b\xff\n'
    assert handler.steps() == {'a': {'stdout_base64': 'YQBi/wo='}}


def J2_long_output_is_printed_whole_and_stored_in_part(handler):
    # The limit falls into the middle of a character.
    line = 'echo -n x; yes é | tr -d "\\n" | head -c 10000000'
    result = handler.ok('step', 'a', '--', 'bash', '-c', line)
    assert len(result.out.encode()) == 10000001
    assert re.search('INBOX_STEP_OUTPUT_CUT step=a dropped=9934465 ', result.err)
    again = handler.ok('step', 'a', '--', 'false')
    assert again.out == 'x' + 'é' * 32767 and re.search('INBOX_STEP_OUTPUT_CUT step=a dropped=9934466 ', again.err)


def J2_steps_are_listed_in_the_order_they_were_done(handler):
    assert handler.ok('step', '--show').out == ''
    for name in ('zebra', 'b', 'a much longer name'):
        handler.ok('step', name, '--', 'echo', name)
    rows = handler.ok('step', '--show', '--json').objects
    assert [(row['name'], row['result']) for row in rows] == [
        ('zebra', 'zebra\n'), ('b', 'b\n'), ('a much longer name', 'a much longer name\n')]
    assert all(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', row['at']) for row in rows)
    assert [line.split('\t')[0] for line in handler.ok('step', '--show').lines] == [row['name'] for row in rows]
    shown = handler.postroom.ok('inbox', 'show', 'import', 'j-1', '--json').object
    assert set(shown['steps']) == {'zebra', 'b', 'a much longer name'}


@pytest.mark.parametrize('name', ['a.b', '$[0]', '"', "it's", 'a/b\\', 'x' * 255, 'größe', '1', ' ', '{"a":1}', '%s%n'])
def J2_a_step_may_have_a_strange_name(handler, name):
    handler.ok('step', 'other', '--', 'true')
    handler.ok('step', name, '--', 'echo', 'done')
    assert handler.ok('step', name, '--', 'false').out == 'done\n'
    assert handler.steps() == {'other': '', name: 'done\n'}


@pytest.mark.parametrize('name, word', [
    ('', 'must not be empty'), ('x' * 256, 'longer than 255 bytes'), ('a\nb', 'control characters'),
    ('a\x7f', 'control characters'), (b'\xff'.decode('utf-8', 'surrogateescape'), 'UTF-8')])
def J2_a_bad_name_is_refused(handler, name, word, tmp_path):
    line = handler.fails(2, 'step', name, '--', 'touch', 'run')
    assert line.startswith("step: the step's name") and word in line
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('args, word', [
    ([], 'NAME or CMD is missing'), (['a'], 'NAME or CMD is missing'),
    (['a', '--'], 'NAME or CMD is missing'), (['--show', 'a', '--', 'true'], 'takes no other arguments'),
    (['--timeout', '0', 'a', '--', 'true'], '--timeout')])
def J2_usage_error_is_explained(handler, args, word):
    assert word in handler.fails(2, 'step', *args)


@pytest.mark.parametrize('args', [['step', 'a', '--', 'touch', 'run'], ['step', '--show'], ['checkpoint']])
def J2_step_outside_a_handler_explains_its_use(postroom, handler, args, tmp_path):
    for name in ('POSTROOM_HANDLER', 'POSTROOM_ID', 'POSTROOM_CLAIM'):
        for value in ('', None):
            env = {**handler.environment, name: value}
            env = {key: value for key, value in env.items() if value is not None}
            line = postroom.fails(2, *args, env=env)
            assert f'{name} is not set' in line and 'postroom consume --exec' in line
    assert 'not the number' in postroom.fails(2, *args, env={**handler.environment, 'POSTROOM_CLAIM': '1x'})
    assert not (tmp_path / 'run').exists()


def J2_step_of_a_lost_job_runs_nothing(handler, sql, tmp_path):
    commands = [['step', 'a', '--', 'touch', 'run'], ['checkpoint'], ['checkpoint', '1']]
    handler.begin()
    handler.claim = 1
    for command in commands:
        assert "j-1 belongs to another worker" in handler.fails(1, *command)
    handler.claim = 2
    sql("UPDATE postroom_inbox SET status = 'completed', locked_by = NULL, locked_until = NULL")
    for command in commands:
        assert "j-1 belongs to another worker" in handler.fails(1, *command)
    sql('DELETE FROM postroom_inbox')
    assert handler.fails(1, 'checkpoint') == 'checkpoint: there is no event j-1 of handler import; it may have been purged'
    assert not (tmp_path / 'run').exists()


def J2_a_step_whose_job_was_lost_meanwhile_is_not_recorded(handler, db):
    take_over = f'sqlite3 {shlex.quote(str(db))} "UPDATE postroom_inbox SET claims = 2" && echo done'
    result = handler('step', 'a', '--', 'sh', '-c', take_over)
    assert (result.code, result.out) == (1, 'done\n')
    assert re.fullmatch("postroom: step a: the command succeeded but is not recorded, so it will run again: "
                        "j-1 belongs to another worker.*\n", result.err)
    handler.claim = 2
    assert handler.steps() == {}


def J2_step_is_recorded_if_its_output_is_not_read(handler):
    with open('/dev/full', 'wb') as full:
        result = handler('step', 'a', '--', 'echo', 'done', stdout=full)
    assert result.code == 1
    assert result.err.startswith('postroom: the step was done and is recorded, but cannot write to standard output')
    assert handler.steps() == {'a': 'done\n'}


def J2_finished_step_is_recorded_once_the_database_is_unlocked(handler, db, tmp_path):
    line = 'echo > begun; until [ -e go ]; do sleep 0.05; done; echo done'
    with open(tmp_path / 'err', 'wb') as err:
        step = handler.start('step', 'a', '--', 'sh', '-c', line, stderr=err)
    wait_until((tmp_path / 'begun').exists, 'the command')
    other = sqlite3.connect(db, timeout=PATIENCE, isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    (tmp_path / 'go').touch()
    wait_until(lambda: 'INBOX_STEP_NOT_RECORDED_YET' in (tmp_path / 'err').read_text() or step.poll() is not None,
               'the lock to be noticed')
    other.execute('COMMIT')
    assert (step.wait(), step.stdout.read()) == (0, b'done\n')
    assert re.search('INBOX_STEP_NOT_RECORDED_YET step=a error="?.*locked', (tmp_path / 'err').read_text())
    assert handler.steps() == {'a': 'done\n'}


def J2_background_process_with_output_open_does_not_block_step(handler, tmp_path):
    line = 'sleep 1000 2> /dev/null & echo $! > pid; echo done'
    assert handler.ok('step', 'a', '--', 'sh', '-c', line).out == 'done\n'
    os.kill(int((tmp_path / 'pid').read_text()), signal.SIGKILL)
    assert handler.steps() == {'a': 'done\n'}


@pytest.mark.parametrize('prepare', ['', 'trap "" TERM;', 'trap "exit 0" TERM;'])
def J3_step_past_its_timeout_is_ended_with_its_children(handler, prepare, tmp_path):
    line = f'{prepare} sleep 1000 & echo $! > pid; wait; wait; sleep 1000'
    result = handler('step', 'a', '--timeout', '200ms', '--', 'sh', '-c', line)
    assert (result.code, result.err) == (1, 'postroom: step a: timed out after 200ms\n')
    wait_until(lambda: not written(tmp_path / 'pid') or gone(tmp_path / 'pid'))
    assert handler.steps() == {}


def J3_timeout_applies_while_output_is_not_read(handler):
    process = handler.start('step', 'a', '--timeout', '200ms', '--', 'yes', stdout=subprocess.PIPE)
    assert process.stderr.readline() == b'postroom: step a: timed out after 200ms\n'
    assert process.wait() == 1


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def J3_a_signal_reaches_the_command_and_the_step_is_not_recorded(handler, number, tmp_path):
    line = 'trap "echo stopped; exit 0" TERM; sleep 1000 & echo $! > pid; wait'
    process = handler.start('step', 'a', '--', 'sh', '-c', line)
    wait_until(lambda: written(tmp_path / 'pid'))
    process.send_signal(number)
    out, _ = process.communicate()
    assert (process.returncode, out) == (128 + number, b'stopped\n')
    wait_until(lambda: gone(tmp_path / 'pid'))
    assert handler.steps() == {}


def J3_command_ends_with_its_step(handler, tmp_path):
    process = handler.start('step', 'a', '--', 'sh', '-c', 'sleep 1000 & echo $! > pid; wait')
    wait_until(lambda: written(tmp_path / 'pid'))
    process.kill()
    wait_until(lambda: gone(tmp_path / 'pid'))


def J2_a_checkpoint_is_printed_and_replaced(handler):
    assert handler.ok('checkpoint').out == 'null\n'
    assert handler.ok('checkpoint', '{"page": 1, "rest": [null]}').out == ''
    assert handler.ok('checkpoint', '--json').object == {'checkpoint': {'page': 1, 'rest': [None]}}
    handler.ok('step', 'a', '--', 'true')
    handler.ok('checkpoint', '-', input='{"page": 2}\n')
    handler.begin()
    assert handler.ok('checkpoint').out == '{"page": 2}\n'
    assert handler.steps() == {'a': ''}
    handler.ok('checkpoint', 'null')
    assert handler.ok('checkpoint').out == 'null\n'


@pytest.mark.parametrize('given, word', [
    (b'{"a": x}', 'not valid JSON: unexpected character at byte 7'), (b'', 'not valid JSON'), (b'1\0', 'zero byte'),
    (b'"\\u0000"', 'not valid JSON'), (b'[' * 2000, 'not valid JSON'),
    (b'"' + b'x' * (1 << 20) + b'"', 'larger than the maximum')],
    ids=['letter', 'empty', 'zero', 'escaped zero', 'deep', 'large'])
def J2_a_checkpoint_that_is_not_json_changes_nothing(handler, given, word):
    handler.ok('checkpoint', '[1]')
    line = handler.fails(1, 'checkpoint', '-', input=given)
    assert line.startswith('checkpoint') and word in line
    assert handler.ok('checkpoint').out == '[1]\n'


def consume(run, script, *options):
    path = os.path.dirname(PROGRAM) + ':' + os.environ['PATH']
    return run('consume', '--handler', 'import', '--drain', '--base-delay', '10ms', *options, '--exec', script,
               env={'PATH': path})


def J2_job_of_killed_consumer_resumes_after_its_last_step(postroom, sql, tmp_path):
    script = '''
        postroom step a -- sh -c 'echo a >> done' || exit
        postroom step b -- sh -c 'echo b >> done; [ -e healed ] || { echo $$ > pid; sleep 1000; }'
    '''
    postroom.ok('inbox', 'submit', 'import', 'j-1')
    first = consume(postroom.start, script)
    wait_until(lambda: written(tmp_path / 'pid'), 'the second step')
    first.kill()
    first.wait()
    wait_until(lambda: gone(tmp_path / 'pid'), 'the end of its command')
    (tmp_path / 'healed').touch()
    sql('UPDATE postroom_inbox SET locked_until = 0')
    consume(postroom.ok, script)
    assert sql('SELECT status, attempts FROM postroom_inbox') == [('completed', 2)]
    assert (tmp_path / 'done').read_text() == 'a\nb\nb\n'


def J3_the_timeout_of_a_job_ends_the_command_of_its_step(postroom, sql, tmp_path):
    postroom.ok('inbox', 'submit', 'import', 'j-1')
    consume(postroom.ok, "postroom step a -- sh -c 'echo $$ > pid; sleep 1000'", '--timeout', '1s', '--max-attempts', '1')
    (status, error, steps), = sql('SELECT status, last_error, steps FROM postroom_inbox')
    assert (status, steps) == ('dead', '{}') and 'timed out after 1s' in error
    wait_until(lambda: not written(tmp_path / 'pid') or gone(tmp_path / 'pid'), 'the end of its command')
