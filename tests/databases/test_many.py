# SPDX-License-Identifier: Apache-2.0
"""Several relays on one database, and one for long."""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess

import pytest

from conftest import sanitized, wait_until
from databases import ordering

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
KEYS = 60
MOST = 8  # relays
SHARED = 10_000 if SOAK else 600
EACH = 100 if SOAK else 20  # messages of a key, where relays come and go
ROUNDS = 12 if SOAK else 4
PER_ROUND = 20_000 if SOAK else 5000
RELOADS = 10
# As much as the batches of one moment may differ from those of another.
GROWTH_KIB = 12 * 1024


def lines_in(path):
    return path.read_bytes().count(b'\n') if path.exists() else 0


def D1_relay_that_joins_a_busy_one_gets_its_share(postroom):
    """Of what comes when it has begun, neither gets less than a tenth."""
    cwd = pathlib.Path(postroom.cwd)
    written = 0

    def enqueue(count):
        nonlocal written
        ordering.enqueue(postroom, [(f'k{n % KEYS}', n) for n in range(written, written + count)])
        written += count

    def has_joined():
        """The first relay is busy until then, however slowly the other starts."""
        if lines_in(cwd / 'second') > 0:
            return True
        if postroom.stats()['backlog'] < SHARED // 4:
            enqueue(SHARED // 4)
        return False

    def begin(name):
        return postroom.start('relay', '--to', f'exec:echo "$POSTROOM_KEY $(cat)" | tee -a {name} >> out',
                              '--batch-size', '20', '--poll-interval', '50ms', stderr=subprocess.DEVNULL)
    enqueue(SHARED // 4)
    first = begin('first')
    wait_until(lambda: lines_in(cwd / 'first') > SHARED // 20, 'the first relay to be at work')
    second = begin('second')
    wait_until(has_joined, 'the newcomer to deliver')
    before = lines_in(cwd / 'first'), lines_in(cwd / 'second')
    enqueue(SHARED // 2)
    while (left := postroom.stats()['backlog']) > 0:
        wait_until(lambda: postroom.stats()['backlog'] < left, 'more to be delivered')
    shares = [lines_in(cwd / name) - count for name, count in zip(('first', 'second'), before)]
    for relay in (first, second):
        relay.terminate()
        assert relay.wait() == 0
    assert min(shares) >= sum(shares) / 10, shares
    assert ordering.first_deliveries(cwd / 'out') == {
        f'k{n}': list(range(n, written, KEYS)) for n in range(KEYS)}


def is_ready(pid):
    """Whether it takes SIGTERM by itself: then its workers have it blocked."""
    try:
        masks = [re.search(r'SigBlk:\s+(\w+)', (task / 'status').read_text())[1]
                 for task in pathlib.Path('/proc', str(pid), 'task').iterdir()]
    except OSError:  # a thread has ended meanwhile
        return False
    return any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)


def D6_order_holds_while_relays_start_and_stop(postroom):
    """Two at first, then up to eight; some are stopped, some killed, until one is left."""
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    out = pathlib.Path(postroom.cwd, 'out')
    keys = [f'k{n}' for n in range(KEYS)]
    ahead = collections.Counter()
    messages = []
    for key in random.sample(keys * EACH, KEYS * EACH):
        messages.append((key, ahead[key]))
        ahead[key] += 1
    ordering.enqueue(postroom, messages)
    relays = [ordering.begin_relay(postroom, ordering.SINKS['file']) for _ in range(2)]
    steps = ['join'] * (MOST - 2) + random.sample(['stop', 'kill', 'stop', 'kill', 'join'] * 2, 10)
    steps += ['stop', 'kill'] * MOST
    try:
        for done, step in enumerate(steps):
            goal = len(messages) * done // len(steps) // 2
            wait_until(lambda: lines_in(out) >= goal, f'{goal} lines')
            if step == 'join' and len(relays) < MOST:
                relays.append(ordering.begin_relay(postroom, ordering.SINKS['file']))
            elif step != 'join' and len(relays) > 1:
                leaving = relays.pop(random.randrange(len(relays)))
                wait_until(lambda: is_ready(leaving.pid), 'a relay to be ready')
                leaving.send_signal(signal.SIGTERM if step == 'stop' else signal.SIGKILL)
                assert leaving.wait() == (0 if step == 'stop' else -signal.SIGKILL)
        assert len(relays) == 1
        wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()
    assert postroom.stats()['dead'] == 0
    assert ordering.first_deliveries(out) == {key: list(range(EACH)) for key in keys}


def resident_kib(pid):
    status = pathlib.Path('/proc', str(pid), 'status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+)', status)[1])


@pytest.fixture
def disturb(kind, request):
    """Ends all connections of the program to its server."""
    if kind == 'sqlite':
        return lambda: None
    sql = request.getfixturevalue('sql')
    return lambda: sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                       "WHERE application_name = 'postroom' AND datname = current_database()")


def D7_memory_does_not_grow_with_messages_reloads_and_reconnects(postroom, disturb):
    """Many messages, reloads, and whatever disturb() does; the first round is the measure."""
    cwd = pathlib.Path(postroom.cwd)
    log = cwd / 'log'
    # A short lease, for messages claimed by a connection that broke before the reply.
    (cwd / 'postroom.yaml').write_text('relay: { lease: 2s, max_attempts: 1000 }\n'
                                       'sinks: { void: { url: "null:" } }\nroutes: [ { sink: void } ]\n')
    with open(log, 'ab') as file:
        relay = postroom.start('relay', '-c', 'postroom.yaml', '--retention', '0', stderr=file)
    message = '{"topic": "t", "payload": {"fill": "%s"}}\n' % ('x' * 1000)
    sizes = []
    for _ in range(ROUNDS + 1):
        postroom.ok('enqueue', '--ndjson', '-', input=message * PER_ROUND)
        wait_until(lambda: b'OUTBOX_WORKER_FETCH' in log.read_bytes(), 'the relay to be at work')
        for _ in range(RELOADS):
            os.truncate(log, 0)
            relay.send_signal(signal.SIGHUP)
            wait_until(lambda: b'OUTBOX_RELOADED' in log.read_bytes(), 'the reload')
            disturb()
        wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
        sizes.append(resident_kib(relay.pid))
        os.truncate(log, 0)
    relay.terminate()
    assert relay.wait() == 0
    print('KiB after each round:', sizes)
    assert sanitized() or sizes[-1] <= sizes[0] + GROWTH_KIB, sizes
