# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a reviewed list of errors, and rewrites the list.

    POSTROOM_DB=… python3 tests/cli/errors.py FILE      (prints the list as it would be today)

A list has sections, `== NAME`; each runs in a folder of its own. Below each `$ COMMAND` are the lines on
stderr, and the exit status. The last section lists messages that no command of the list can cause.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ELSEWHERE = '== Messages that these commands cannot cause'
# Texts of the system's libraries differ between their versions.
VARIABLE = [(re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?<!0{12})(?<!00ff)(?<!000a)'), 'ID'),
            (re.compile(r'\b(test|missing)_[0-9a-f]{32}'), r'\1_DATABASE'), (re.compile(r'host=/tmp[^\s&:]*'), 'host=SOCKET'),
            (re.compile(r'waited [\d.]+ s'), 'waited SECONDS s'), (re.compile(r'(contains no usable \w+ in PEM: ).*'), r'\1REASON'),
            (re.compile(r'\bpostroom \d+\.\d+\.\d+'), 'postroom VERSION'),
            # The words of libcurl, which later versions changed.
            (re.compile(r"\bCould(?:n't| not) connect to server"), 'REASON'),
            (re.compile(r'Bad hostname|Malformed input to a URL function'), 'REASON'),
            (re.compile(r'\d{4}-\d\d-\d\dT[\d:.]+Z(?<!37:42Z)(?<!00:00Z)'), 'TIME')]


def read_list(path):
    """{section: [(command, expected)]}, and the messages of the last section."""
    sections, elsewhere, at = {}, [], None
    for block in pathlib.Path(path).read_text(encoding='utf-8').split('\n\n'):
        lines = [line for line in block.split('\n') if line]
        if lines and lines[0].startswith('== '):
            name = lines.pop(0)
            at = None if name == ELSEWHERE else sections.setdefault(name.removeprefix('== '), [])
        if at is None:
            elsewhere += lines
        elif lines and lines[0].startswith('$ '):
            at.append((lines[0].removeprefix('$ '), '\n'.join(lines[1:])))
    return sections, elsewhere


class Place:
    """A folder with the files that the commands name, and the environment to run them in."""

    def __init__(self, folder, program, db='shop.db'):
        self.folder = pathlib.Path(folder)
        bin_folder = self.folder / 'bin'
        bin_folder.mkdir()
        (bin_folder / 'postroom').symlink_to(os.path.abspath(program))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith('POSTROOM')}
        self.env.update(PATH=f'{bin_folder}:{self.env["PATH"]}', POSTROOM_DB=db, LC_ALL='C.UTF-8', TERM='dumb')
        self.db = db
        (self.folder / 'folder').mkdir()
        (self.folder / 'text').write_text('neither a database nor a certificate\n')
        (self.folder / 'empty.db').touch()
        (self.folder / 'lines').write_text('{"topic": "t", "payload": 1}\n')
        if '://' not in db:
            self.run('postroom migrate')

    def run(self, command):
        """What it prints on stderr, and its status, in the form of the list."""
        # A relay that runs is a fault of the list: timeout ends it, with status 124.
        done = subprocess.run(['timeout', '100', 'bash', '-c', command], cwd=self.folder, env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = done.stderr.decode('utf-8', 'replace').replace(str(self.folder), 'FOLDER').replace(self.db, 'DATABASE')
        for pattern, word in VARIABLE:
            text = pattern.sub(word, text)
        text = '\n'.join(line for line in text.split('\n') if line.strip() and not re.match(r'(OUTBOX|INBOX)_', line))
        return f'{text}\nexit status {done.returncode}'.lstrip('\n')


FORMAT = re.compile(r'\b(?:cli_fail|cli_usage|pr_fault|pr_err_set|pr_err_errno)\(\s*[^"()]*?'
                    r'((?:"(?:\\.|[^"\\])*"|\s|PRI\w+)*"(?:\\.|[^"\\])*")')


def messages_of(*patterns):
    """The format strings of the errors in these files."""
    paths = subprocess.check_output(['git', 'ls-files', '--', *patterns], cwd=ROOT, text=True).split()
    for path in paths:
        for match in FORMAT.finditer((ROOT / path).read_text(encoding='utf-8')):
            text = re.sub(r'PRI(\w)\w+', r'"\1"', match[1])
            joined = ''.join(re.findall(r'"((?:\\.|[^"\\])*)"', text))
            if len(re.sub(r'%[-.*\d]*(?:ll|z)?\w', '', joined)) > 6:
                yield joined.replace('\\"', '"').replace('\\\\', '\\').replace('%%', '%')


def pattern_of(message):
    parts = re.split(r'%[-.*\d]*(?:ll|z)?[a-z]', message)
    return re.compile('.*?'.join(re.escape(part) for part in parts))


def main():
    sections, elsewhere = read_list(sys.argv[1])
    program = os.environ.get('POSTROOM', str(ROOT / 'build/postroom'))
    parts = []
    for name, commands in sections.items():
        with tempfile.TemporaryDirectory() as folder:
            place = Place(folder, program, os.environ.get('POSTROOM_DB') or 'shop.db')
            answers = [f'$ {command}\n{place.run(command)}' for command, _ in commands]
        answers[0] = f'== {name}\n{answers[0]}'
        parts += answers
    print('\n\n'.join([*parts, ELSEWHERE + ''.join(f'\n{line}' for line in elsewhere)]))


if __name__ == '__main__':
    main()
