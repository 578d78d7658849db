# SPDX-License-Identifier: Apache-2.0
"""What only a terminal gets to see: tables, colours, progress, questions."""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from conftest import PROGRAM, wait_until

ESCAPE = re.compile(r'\x1b\[[0-9;]*[A-Za-z]')


class Terminal:
    """A program on a terminal of its own; streams named in pipes go elsewhere."""

    def __init__(self, postroom, *args, columns=120, env=None, **pipes):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 40, columns, 0, 0))
        streams = {'stdin': slave, 'stdout': slave, 'stderr': slave, **pipes}
        self.process = postroom.start(*args, env=env, start_new_session=True, **streams)
        os.close(slave)
        self.text = ''

    def read(self):
        try:
            piece = os.read(self.master, 65536).decode('utf-8', 'replace')
        except OSError:  # the other side is closed
            piece = ''
        self.text += piece
        return piece

    def read_until(self, text):
        while text not in self.text:
            assert self.read(), f'ended without "{text}": {self.text}'

    def finish(self):
        while self.read():
            pass
        code = self.process.wait()
        os.close(self.master)
        self.text = self.text.replace('\r\n', '\n')
        return code


def on_terminal(postroom, *args, **options):
    terminal = Terminal(postroom, *args, **options)
    return terminal.finish(), terminal.text


def fill(postroom, count, **members):
    line = json.dumps({'topic': 'orders.created', 'payload': {}, **members})
    postroom.ok('enqueue', '--ndjson', '-', input=(line + '\n') * count)


def test_list_is_a_table_with_a_head_and_colors(postroom):
    id = postroom.enqueue('orders.created', '{}', '--key', 'o-1')
    postroom.ok('relay', '--to', 'null:', '--drain')
    code, text = on_terminal(postroom, 'list')
    assert code == 0 and '\x1b[32mdelivered\x1b[0m' in text
    head, row = ESCAPE.sub('', text).splitlines()
    assert head.split() == ['ID', 'STATUS', 'TRIES', 'CREATED', 'TOPIC', 'KEY', 'LAST', 'ERROR']
    assert row.startswith(id) and row.index('delivered') == head.index('STATUS')
    assert row.index('orders.created') == head.index('TOPIC')


@pytest.mark.parametrize('env', [{'NO_COLOR': '1'}, {'TERM': 'dumb'}])
def test_no_color_and_dumb_terminals_get_no_colors(postroom, env):
    postroom.enqueue()
    for args in (['list'], ['stats'], ['--help'], ['nonsense'], ['help', 'list']):
        _, text = on_terminal(postroom, *args, env=env)
        assert text and '\x1b' not in text


def test_empty_no_color_is_ignored(postroom):
    postroom.enqueue()
    assert '\x1b[33mpending' in on_terminal(postroom, 'list', env={'NO_COLOR': ''})[1]


def test_a_pipe_gets_no_escapes_even_if_stderr_is_a_terminal(postroom):
    postroom.enqueue()
    terminal = Terminal(postroom, 'list', stdout=subprocess.PIPE)
    out = terminal.process.stdout.read()
    assert terminal.finish() == 0
    assert b'\x1b' not in out and b'\t' in out and terminal.text == ''


def test_long_errors_are_cut_to_the_terminals_width(postroom, sql):
    postroom.enqueue()
    sql("UPDATE postroom_outbox SET status = 'dead', last_error = ?", 'ä' * 500)
    _, text = on_terminal(postroom, 'list', columns=130)
    head, row = ESCAPE.sub('', text).splitlines()
    assert len(row) == 130 and row.endswith('ä…')


def L1_data_cannot_control_the_terminal(postroom, sql):
    id = postroom.enqueue('t', '"\x7f\u009b31m"', '--key', 'a\x1b]0;owned\x07\u009b31m\nb')
    sql("UPDATE postroom_outbox SET status = 'dead', last_error = ?", 'x\x1b[2J\r')
    for args in (['list'], ['show', id]):
        text = on_terminal(postroom, *args, env={'NO_COLOR': '1'})[1]
        assert not re.search('[\x00-\x09\x0b-\x1f\x7f-\x9f]', text), text
        assert r'\x1b]0;owned\x07' in text
    line = on_terminal(postroom, 'show', 'a\x1b[2Jb', env={'NO_COLOR': '1'})[1]
    assert r'a\x1b[2Jb' in line


def test_errors_are_colored_on_a_terminal(postroom):
    code, text = on_terminal(postroom, 'nonsense')
    assert code == 2 and text.startswith('\x1b[31mpostroom:\x1b[0m ')


def test_stats_is_a_table_by_topic(postroom):
    fill(postroom, 1200)
    code, text = on_terminal(postroom, 'stats')
    head, topic, total = ESCAPE.sub('', text).splitlines()
    assert code == 0 and head.startswith('NAMESPACE') and '1,200' in topic
    assert total.startswith('all ') and total.split()[1] == '1,200'


def test_stats_watch_redraws_until_interrupted(postroom):
    postroom.ok('migrate')
    terminal = Terminal(postroom, 'stats', '--watch', '--interval', '50ms')
    terminal.read_until('\x1b[H\x1b[J')
    postroom.enqueue('first.topic')
    terminal.read_until('first.topic')
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == -signal.SIGINT


def X2_purge_asks_and_deletes_nothing_on_no(postroom):
    fill(postroom, 3)
    postroom.ok('relay', '--to', 'null:', '--drain')
    for answer in ('n\n', '\n', 'ye\n', '\x04'):
        terminal = Terminal(postroom, 'purge', '--status', 'delivered')
        terminal.read_until('Delete 3 delivered messages permanently? [y/N] ')
        os.write(terminal.master, answer.encode())
        assert terminal.finish() == 1 and 'nothing was deleted' in terminal.text
    assert len(postroom.rows()) == 3


@pytest.mark.parametrize('answer', ['y', 'yes', 'Y'])
def X2_purge_asks_and_deletes_on_yes(postroom, answer):
    fill(postroom, 3)
    postroom.enqueue('other')
    postroom.ok('relay', '--to', 'null:', '--drain')
    terminal = Terminal(postroom, 'purge', '--status', 'delivered', '--topic', 'orders.*')
    terminal.read_until('Delete 3 delivered messages permanently?')
    os.write(terminal.master, answer.encode() + b'\n')
    assert terminal.finish() == 0 and '3 delivered messages deleted' in terminal.text
    assert len(postroom.rows()) == 1


def X2_purge_asks_with_the_exact_number(postroom):
    fill(postroom, 3)
    postroom.ok('relay', '--to', 'null:', '--drain')
    terminal = Terminal(postroom, 'purge', '--status', 'delivered', '--older-than', '90s')
    terminal.read_until('Delete 0 delivered messages older than 90s permanently?')
    os.write(terminal.master, b'y\n')
    assert terminal.finish() == 0
    assert len(postroom.rows()) == 3


def X2_purge_with_yes_does_not_ask(postroom):
    fill(postroom, 3)
    postroom.ok('relay', '--to', 'null:', '--drain')
    code, text = on_terminal(postroom, 'purge', '--status', 'delivered', '--yes')
    assert code == 0 and '[y/N]' not in text and postroom.rows() == []


def test_bulk_enqueue_draws_and_clears_a_bar(postroom, tmp_path):
    lines = '{"topic":"t","payload":{}}\n' * 1000
    (tmp_path / 'messages.ndjson').write_text(lines * 20)
    code, text = on_terminal(postroom, 'enqueue', '--ndjson', 'messages.ndjson', '--batch-size', '100')
    assert code == 0
    assert re.search(r'\r\x1b\[Kenqueue \[#*\.*\] +\d+% [\d,]+', text)
    assert re.search(r'\r\x1b\[K20,000 messages enqueued\n$', text)


def test_bulk_enqueue_from_a_pipe_counts_without_a_total(postroom):
    reader, writer = os.pipe()
    terminal = Terminal(postroom, 'enqueue', '--ndjson', '-', '--batch-size', '1', stdin=reader)
    os.close(reader)
    os.write(writer, b'{"topic":"t","payload":{}}\n')
    terminal.read_until('enqueue 1')
    os.close(writer)
    assert terminal.finish() == 0 and '%' not in terminal.text


def test_bad_line_clears_the_bar_before_the_error(postroom, tmp_path):
    (tmp_path / 'messages.ndjson').write_text('{"topic":"t","payload":{}}\n' * 5 + '{')
    code, text = on_terminal(postroom, 'enqueue', '--ndjson', 'messages.ndjson', '--batch-size', '1',
                             env={'NO_COLOR': '1'})
    assert code == 1
    assert re.search(r'\r\x1b\[Kpostroom: enqueue: messages.ndjson: line 6, column 2: [^\r]*\n$', text)


def test_drain_draws_and_clears_a_bar(postroom):
    fill(postroom, 30)
    code, text = on_terminal(postroom, 'relay', '--to', 'exec:sleep 0.1', '--drain', '--batch-size',
                             '1', '--log-level', 'warn', stdout=subprocess.DEVNULL)
    assert code == 0
    assert re.search(r'drain \[#*\.*\] +\d+% \d+', text)
    assert text.endswith('\r\x1b[K')


def test_progress_bar_is_shorter_than_any_log_line(postroom):
    """A log line that comes meanwhile must cover it whole."""
    fill(postroom, 30)
    _, text = on_terminal(postroom, 'relay', '--to', 'exec:sleep 0.1', '--drain', '--batch-size', '1')
    bars = re.findall(r'\r\x1b\[K(drain .*?)\r', text)
    lines = re.findall(r'OUTBOX_[^\n]*', text)
    assert bars and lines and max(map(len, bars)) < min(map(len, lines))


def test_no_progress_bar_without_a_terminal(postroom, tmp_path):
    (tmp_path / 'messages.ndjson').write_text('{"topic":"t","payload":{}}\n' * 20000)
    result = postroom.ok('enqueue', '--ndjson', 'messages.ndjson')
    assert result.err == '' and result.out == '20000 messages enqueued\n'


def test_a_duplicate_is_explained_on_a_terminal(postroom):
    id = postroom.enqueue('t', '{}', '--dedupe-key', 'd')
    code, text = on_terminal(postroom, 'enqueue', 't', '{}', '--dedupe-key', 'd', '--log-level', 'warn')
    assert code == 0 and text.startswith(f'{id}  (') and 'duplicate' in text


def test_payload_can_be_typed(postroom):
    terminal = Terminal(postroom, 'enqueue', 't')
    terminal.read_until('payload')
    os.write(terminal.master, b'{"typed":1}\n\x04')
    assert terminal.finish() == 0
    assert postroom.rows()[0]['payload'] == {'typed': 1}


def J2_skipped_step_is_reported_on_a_terminal_only(postroom, sql):
    postroom.ok('inbox', 'submit', 'h', 'j-1')
    sql("UPDATE postroom_inbox SET status = 'active', locked_by = 'me', locked_until = 0, claims = 1")
    env = {'POSTROOM_HANDLER': 'h', 'POSTROOM_ID': 'j-1', 'POSTROOM_CLAIM': '1'}
    step = ['step', 'a', '--', 'echo', 'done']
    postroom.ok(*step, env=env)
    assert postroom.ok(*step, env=env).err == ''
    code, text = on_terminal(postroom, *step, env=env, stdout=subprocess.DEVNULL)
    assert code == 0 and re.match('INBOX_STEP_SKIPPED step=a done_at=2', text)
    assert 'INBOX_STEP_SKIPPED' in postroom.ok('--log-level', 'debug', *step, env=env).err
    code, text = on_terminal(postroom, 'step', '--show', env=env)
    assert code == 0 and re.match(r'STEP +DONE AT +RESULT\na +2\S+ +"done\\n"\n', ESCAPE.sub('', text))
