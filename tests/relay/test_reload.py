# SPDX-License-Identifier: Apache-2.0
"""SIGHUP: the configuration is read again, and nothing is lost on the way."""
import collections
import os
import pathlib
import resource
import signal

import pytest

from conftest import wait_until
from relay_process import ids_in, lines_of, sanitized

HEAD = '''
relay: { poll_interval: 50ms, workers: 2, batch_size: %d }
sinks:
  a: { url: "file:a.ndjson" }
  b: { url: "file:b.ndjson" }
  slow: { url: "exec:echo $POSTROOM_ID >> begun; while ! test -e go; do sleep 0.01; done; echo $POSTROOM_ID >> done" }
routes:
'''
TO_A = HEAD % 10 + '  - { topic: "t", sink: a }\n'
TO_B = HEAD % 20 + '  - { topic: "t", sink: b }\n'
TO_SLOW = HEAD % 10 + '  - { topic: "t", sink: slow }\n'


class Running:
    def __init__(self, postroom, tmp_path):
        self.path, self.postroom = tmp_path, postroom
        self.relay = None

    def start(self, text, *args):
        (self.path / 'c.yaml').write_text(text)
        with open(self.path / 'log', 'wb') as log:
            self.relay = self.postroom.start('relay', '-c', 'c.yaml', *args, stderr=log)

    def logged(self, text):
        return (self.path / 'log').read_text().count(text)

    def reload(self, text, event='OUTBOX_RELOADED'):
        before = self.logged(event)
        (self.path / 'c.yaml').write_text(text)
        self.relay.send_signal(signal.SIGHUP)
        wait_until(lambda: self.logged(event) > before, event)

    def count(self, name):
        return len(lines_of(self.path / name))

    def stop(self):
        self.relay.terminate()
        assert self.relay.wait() == 0


def is_pending(pid, number):
    """Whether a signal has not been taken yet: a lower one would be taken before it."""
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    pending, = [line.split()[1] for line in status.splitlines() if line.startswith('ShdPnd:')]
    return int(pending, 16) >> (number - 1) & 1


def names_in(threads):
    """The names of the threads of a process, by its directory of them."""
    found = set()
    for task in pathlib.Path(threads).iterdir():
        try:
            found.add((task / 'comm').read_text().strip())
        except OSError:  # it has ended meanwhile
            pass
    return found


@pytest.fixture
def running(postroom, tmp_path):
    return Running(postroom, tmp_path)


def D7_added_route_delivers_waiting_messages(postroom, running):
    postroom.enqueue('t')
    postroom.enqueue('lost')
    running.start(TO_A)
    wait_until(lambda: running.logged('OUTBOX_UNROUTED count=1 namespace=default topic=lost'))
    wait_until(lambda: running.count('a.ndjson') == 1)
    running.reload(TO_A + '  - { sink: b }\n')
    wait_until(lambda: running.count('b.ndjson') == 1)
    wait_until(lambda: running.logged('OUTBOX_UNROUTED count=0'))
    running.stop()


def D7_invalid_file_is_refused_and_the_old_configuration_stays(postroom, running):
    running.start(TO_A)
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 1)
    running.reload(TO_B.replace('batch_size', 'batch_szie'), 'OUTBOX_RELOAD_REFUSED')
    assert running.logged('did you mean batch_size')
    running.reload(TO_B + '  - { sink: unknown }\n', 'OUTBOX_RELOAD_REFUSED')
    running.reload('- not: [closed\n', 'OUTBOX_RELOAD_REFUSED')
    running.reload(TO_B.replace('file:b', 'file:missing/b'), 'OUTBOX_RELOAD_REFUSED')
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 2)
    assert running.count('b.ndjson') == 0
    running.reload(TO_B)
    postroom.enqueue('t')
    wait_until(lambda: running.count('b.ndjson') == 1)
    running.stop()


def D7_failed_start_of_threads_leaves_limits_unchanged(postroom, running):
    if sanitized():
        pytest.skip('a sanitizer takes memory of its own')
    limited = TO_B.replace('file:b.ndjson"', 'file:b.ndjson", rate: 1/h')
    running.start(TO_B)
    postroom.enqueue('t')
    wait_until(lambda: running.count('b.ndjson') == 1)
    size = int(pathlib.Path(f'/proc/{running.relay.pid}/statm').read_text().split()[0])
    room = size * resource.getpagesize() + 100 * 1024 * 1024
    resource.prlimit(running.relay.pid, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    running.reload(limited.replace('workers: 2', 'workers: 200'), 'OUTBOX_RELOAD_REFUSED')
    assert running.logged('starting a thread')
    resource.prlimit(running.relay.pid, resource.RLIMIT_AS,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for _ in range(3):
        postroom.enqueue('t')
    wait_until(lambda: running.count('b.ndjson') == 4)
    running.stop()


def D7_old_generation_finishes_its_messages_in_flight(postroom, running, tmp_path):
    first = postroom.enqueue('t')
    running.start(TO_SLOW)
    wait_until(lambda: ids_in(tmp_path / 'begun') == [first])
    running.reload(TO_B)
    postroom.enqueue('t')
    wait_until(lambda: running.count('b.ndjson') == 1)
    assert postroom.show(first)['status'] == 'processing'
    (tmp_path / 'go').touch()
    wait_until(lambda: postroom.show(first)['status'] == 'delivered')
    assert ids_in(tmp_path / 'begun') == ids_in(tmp_path / 'done') == [first]
    assert postroom.show(first)['attempts'] == 1
    running.stop()


def D7_old_generation_finishes_messages_in_flight_without_grace(postroom, running, tmp_path):
    """The grace is for a stop: a reload is in no hurry."""
    no_grace = TO_SLOW.replace('workers: 2', 'workers: 2, shutdown_grace: 0s')
    first = postroom.enqueue('t')
    running.start(no_grace)
    wait_until(lambda: ids_in(tmp_path / 'begun') == [first])
    running.reload(no_grace.replace('slow }', 'b }'))
    postroom.enqueue('t')
    wait_until(lambda: running.count('b.ndjson') == 1)
    (tmp_path / 'go').touch()
    wait_until(lambda: postroom.show(first)['status'] == 'delivered')
    assert ids_in(tmp_path / 'begun') == ids_in(tmp_path / 'done') == [first]
    assert postroom.show(first)['attempts'] == 1
    running.stop()


def D7_stop_ends_old_generation_after_its_grace(postroom, running, tmp_path):
    patient = TO_SLOW.replace('workers: 2', 'workers: 2, shutdown_grace: 0s, lease: 1h,'
                              ' publish_timeout: 20m')
    first = postroom.enqueue('t')
    running.start(patient)
    wait_until(lambda: ids_in(tmp_path / 'begun') == [first])
    running.reload(patient.replace('slow }', 'b }'))
    running.stop()
    # It may be leased still: past the grace the relay does not wait for a busy database.
    assert postroom.show(first)['status'] in ('pending', 'processing')
    assert not ids_in(tmp_path / 'done')


def D7_reloads_under_load_neither_lose_nor_duplicate_messages(postroom, running, tmp_path):
    running.start(TO_A)
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 1)
    for round in range(20):
        lines = '{"topic":"t","payload":{}}\n' * 50
        postroom.ok('enqueue', '--ndjson', '-', '--json', input=lines)
        running.reload(TO_B if round % 2 == 0 else TO_A)
    wait_until(lambda: postroom.stats()['delivered'] == 1001)
    running.stop()
    ids = collections.Counter(line['id'] for name in ('a.ndjson', 'b.ndjson')
                              for line in lines_of(tmp_path / name))
    assert len(ids) == 1001 and set(ids.values()) == {1}


def D7_retry_policy_is_fixed_at_start(postroom, running):
    running.start(TO_A)
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 1)
    running.reload(TO_A.replace('workers: 2', 'workers: 1, max_attempts: 3, on_dead: block'))
    assert running.logged('OUTBOX_RELOAD_KEPT settings="max_attempts on_dead"') == 1
    running.stop()


def D7_reload_during_stop_changes_nothing(postroom, running, tmp_path):
    first = postroom.enqueue('t')
    running.start(TO_SLOW)
    wait_until(lambda: ids_in(tmp_path / 'begun') == [first])
    running.relay.terminate()
    wait_until(lambda: not is_pending(running.relay.pid, signal.SIGTERM))
    (tmp_path / 'c.yaml').write_text(TO_B)
    for _ in range(3):
        running.relay.send_signal(signal.SIGHUP)
    (tmp_path / 'go').touch()
    assert running.relay.wait() == 0
    assert postroom.show(first)['status'] == 'delivered'
    assert not running.logged('OUTBOX_RELOADED') and not running.logged('OUTBOX_RELOAD_REFUSED')


def D7_new_lease_sets_its_dependent_defaults(postroom, running):
    running.start(TO_A.replace('poll_interval: 50ms', 'lease: 30s'))
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 1)
    running.reload(TO_A.replace('poll_interval: 50ms', 'lease: 600ms'))
    assert not running.logged('OUTBOX_RELOAD_REFUSED')
    running.stop()


def D7_memory_and_descriptors_do_not_grow_with_reloads(postroom, running):
    running.start(TO_A)
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 1)
    threads = f'/proc/{running.relay.pid}/task'
    files = f'/proc/{running.relay.pid}/fd'
    wait_until(lambda: {'janitor', 'a 1', 'a 2'} <= names_in(threads), 'all threads')
    expected = len(os.listdir(threads))  # a sanitizer may have one of its own among them
    running.reload(TO_A)
    wait_until(lambda: len(os.listdir(threads)) == expected)
    before = len(os.listdir(files))
    for _ in range(10):
        running.reload(TO_A)
    wait_until(lambda: len(os.listdir(threads)) == expected)
    postroom.enqueue('t')
    wait_until(lambda: running.count('a.ndjson') == 2)
    # Workers open some only when they have reason to; ten generations left behind would be far more.
    wait_until(lambda: len(os.listdir(files)) <= before + 10, 'files that were closed')
    running.stop()
