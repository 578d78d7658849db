# SPDX-License-Identifier: Apache-2.0
"""What the tests of a running relay share."""
import json
import os
import pathlib

from conftest import sanitized  # noqa: F401 -- for those who use the rest of this file

SOAK = os.environ.get('POSTROOM_SOAK') == '1'


def lines_of(path):
    """The messages of a file: sink, in the order they were written."""
    if not os.path.exists(path):
        return []
    with open(path, encoding='utf-8') as file:
        return [json.loads(line) for line in file if line.endswith('\n')]


def count_whole_lines(path):
    """How many messages are in it, where a relay may have been killed while it wrote: the next one has ended its line."""
    def is_whole(line):
        try:
            return isinstance(json.loads(line), dict)
        except ValueError:
            return False
    with open(path, encoding='utf-8') as file:
        return sum(is_whole(line) for line in file)


def ids_in(path):
    """The words of a file that children append to, one a line."""
    if not os.path.exists(path):
        return []
    return pathlib.Path(path).read_text().split()


def enqueue_many(postroom, count, topic='t', size=0):
    """Messages with {"n": 0}, {"n": 1}, …, filled up to about size bytes."""
    path = pathlib.Path(postroom.cwd) / 'many.ndjson'
    filler = 'x' * size
    with open(path, 'w', encoding='utf-8') as file:
        for n in range(count):
            file.write(json.dumps({'topic': topic, 'payload': {'n': n, 'fill': filler}}) + '\n')
    postroom.ok('enqueue', '--ndjson', path)
    path.unlink()


def processes_with(word):
    """The ids of the processes, zombies aside, that have word on their command line."""
    found = []
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if word.encode() in pathlib.Path('/proc', name, 'cmdline').read_bytes():
                found.append(int(name))
        except OSError:
            pass
    return found


def children_of(pid):
    """The children of all threads of a process, with the state of each."""
    found = {}
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            stat = pathlib.Path('/proc', name, 'stat').read_text()
        except OSError:
            continue
        state, parent = stat.rpartition(')')[2].split()[:2]
        if int(parent) == pid:
            found[int(name)] = state
    return found


def expire_leases(sql):
    """Instead of waiting for them."""
    sql("UPDATE postroom_outbox SET locked_until = 1 WHERE status = 'processing'")


def make_due(sql):
    sql("UPDATE postroom_outbox SET next_attempt_at = 1 WHERE status = 'pending'")
