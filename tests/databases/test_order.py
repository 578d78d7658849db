# SPDX-License-Identifier: Apache-2.0
"""Order within a key (D6)."""
import collections
import os
import pathlib
import random
import signal
import subprocess

import pytest

from conftest import wait_until
from databases.ordering import SINKS, SOAK, arrived, begin_relay, enqueue, first_deliveries, have_arrived

RELAYS = 4
KEYS = 100 if SOAK else 12
EACH = 100 if SOAK else 20  # messages of a key
KILLS = 60 if SOAK else 8


@pytest.mark.parametrize('sink', SINKS)
def D6_order_holds_across_relays_retries_and_kills(postroom, sink):
    """Relays are killed while they deliver keys that are mixed at random; each key keeps its order."""
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    path = pathlib.Path(postroom.cwd, 'out')
    keys = [f'k{n}' for n in range(KEYS)]
    ahead = collections.Counter()
    mixed = keys * EACH
    random.shuffle(mixed)
    messages = []
    for key in mixed:
        messages.append((key, ahead[key]))
        ahead[key] += 1
    enqueue(postroom, messages[:len(messages) // 2])
    relays = [begin_relay(postroom, SINKS[sink]) for _ in range(RELAYS)]
    try:
        for kill in range(KILLS):
            # In the middle of the work; the second half comes while it is going on.
            goal = len(messages) * kill // KILLS
            wait_until(lambda: have_arrived(path, goal), f'{goal} deliveries')
            if kill == KILLS // 3:
                enqueue(postroom, messages[len(messages) // 2:])
            n = random.randrange(RELAYS)
            assert relays[n].poll() is None, pathlib.Path(postroom.cwd, 'relays.log').read_text()[-4000:]
            relays[n].kill()
            relays[n].wait()
            relays[n] = begin_relay(postroom, SINKS[sink])
        wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()
    assert postroom.stats()['dead'] == 0
    assert first_deliveries(path) == {key: list(range(EACH)) for key in keys}


def D6_failing_message_blocks_no_other_key(postroom):
    """a1 fails for as long as the file `cure` is missing; only a2 and a3 wait for it."""
    cwd = pathlib.Path(postroom.cwd)
    enqueue(postroom, [('a', 1), ('a', 2), ('b', 1), ('a', 3), ('b', 2), ('c', 1)])
    relay = postroom.start(
        'relay', '--base-delay', '10ms', '--max-delay', '20ms', '--poll-interval', '10ms', '--max-attempts',
        '1000000', '--to', 'exec:p=$(cat); echo "$POSTROOM_KEY $p" >> tried; '
        'if [ "$POSTROOM_KEY $p" = "a 1" ]; then test -e cure; fi && echo "$POSTROOM_KEY $p" >> out',
        stderr=subprocess.DEVNULL)
    wait_until(lambda: len(arrived(cwd / 'out')) == 3, 'the other keys')
    # Another one behind it, and some that come later and are not its neighbours at all.
    enqueue(postroom, [('a', 4), ('b', 3)])
    wait_until(lambda: ('b', 3) in arrived(cwd / 'out'), 'another key')
    tries = arrived(cwd / 'tried').count(('a', 1))
    wait_until(lambda: arrived(cwd / 'tried').count(('a', 1)) > tries + 3, 'more tries')
    assert not {('a', 2), ('a', 3), ('a', 4)} & set(arrived(cwd / 'tried'))
    (cwd / 'cure').touch()
    wait_until(lambda: len(arrived(cwd / 'out')) == 8, 'all')
    assert first_deliveries(cwd / 'out') == {'a': [1, 2, 3, 4], 'b': [1, 2, 3], 'c': [1]}
    wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be settled')
    relay.terminate()
    assert relay.wait() == 0
    attempts = {row['payload']: row['attempts'] for row in postroom.rows('--key', 'a')}
    assert attempts == {1: arrived(cwd / 'tried').count(('a', 1)), 2: 1, 3: 1, 4: 1}


REJECT_FIRST = ('exec:p=$(cat); test -e cure -o "$POSTROOM_KEY $p" != "a 1" || exit 65; '
                'echo "$POSTROOM_KEY $p" >> out')


def D6_dead_letter_unblocks_its_key(postroom):
    enqueue(postroom, [('a', 1), ('a', 2), ('a', 3), ('b', 1)])
    postroom.ok('relay', '--drain', '--to', REJECT_FIRST)
    assert first_deliveries(pathlib.Path(postroom.cwd, 'out')) == {'a': [2, 3], 'b': [1]}
    assert [row['payload'] for row in postroom.rows('--status', 'dead')] == [1]


def D1_drain_ignores_messages_blocked_by_dead_letter(postroom):
    enqueue(postroom, [('a', 1), ('a', 2), ('b', 1), ('a', 3)])
    postroom.ok('relay', '--drain', '--on-dead', 'block', '--to', REJECT_FIRST)
    assert first_deliveries(pathlib.Path(postroom.cwd, 'out')) == {'b': [1]}
    assert sorted((row['payload'], row['status'], row['attempts']) for row in postroom.rows('--key', 'a')) \
        == [(1, 'dead', 1), (2, 'pending', 0), (3, 'pending', 0)]
    # For a relay that goes on after a death it is not blocked.
    postroom.ok('relay', '--drain', '--to', REJECT_FIRST)
    assert first_deliveries(pathlib.Path(postroom.cwd, 'out')) == {'b': [1], 'a': [2, 3]}


@pytest.mark.parametrize('freed_by', ['retry', 'purge'])
def D6_dead_letter_blocks_its_key_until_an_operator_acts(postroom, freed_by):
    """Until an operator retries the dead message, which is then the last, or purges it."""
    cwd = pathlib.Path(postroom.cwd)
    enqueue(postroom, [('a', 1), ('a', 2), ('b', 1)])
    relay = postroom.start('relay', '--on-dead', 'block', '--poll-interval', '10ms', '--to', REJECT_FIRST,
                           stderr=subprocess.DEVNULL)
    dead, = wait_until(lambda: postroom.rows('--status', 'dead'), 'the death')
    # It had every reason to deliver what it delivers only when it is freed.
    for n in range(2, 6):
        enqueue(postroom, [('a', n + 1), ('b', n)])
        wait_until(lambda: ('b', n) in arrived(cwd / 'out'), 'another key')
    assert 'a' not in first_deliveries(cwd / 'out')
    assert {row['status'] for row in postroom.rows('--key', 'a') if row['id'] != dead['id']} == {'pending'}
    (cwd / 'cure').touch()
    if freed_by == 'retry':
        postroom.ok('retry', dead['id'])
    else:
        postroom.ok('purge', '--status', 'dead', '--yes')
    expected = [2, 3, 4, 5, 6] + ([1] if freed_by == 'retry' else [])
    wait_until(lambda: len(first_deliveries(cwd / 'out').get('a', [])) == len(expected), 'its key')
    assert first_deliveries(cwd / 'out')['a'] == expected
    relay.terminate()
    assert relay.wait() == 0


def D6_relay_suspended_past_its_lease_publishes_no_more_of_batch(postroom):
    """Stopped in the middle of a batch until another relay has taken over and delivered all of it."""
    cwd = pathlib.Path(postroom.cwd)
    enqueue(postroom, [(f'k{n % 50}', n) for n in range(200)])
    os.mkfifo(cwd / 'gate')
    log = cwd / 'sleeper.log'
    # The commands outlast a slow moment of this test; else some have failed before the relay is stopped.
    with open(log, 'wb') as file:
        sleeper = postroom.start('relay', '--workers', '1', '--lease', '16s', '--to',
                                 'exec:echo "$POSTROOM_KEY $(cat)" >> begun; read word < gate',
                                 stderr=file)
    # All that go at once: one that is being started when the relay is stopped begins afterwards.
    wait_until(lambda: len(arrived(cwd / 'begun')) == 8, 'the first relay to publish')
    sleeper.send_signal(signal.SIGSTOP)
    postroom.ok('relay', '--drain', '--to', 'file:out', '--max-attempts', '1000')
    begun = arrived(cwd / 'begun')
    assert 0 < len(begun) < 200
    settled = {row['id']: row for row in postroom.rows()}
    sleeper.send_signal(signal.SIGCONT)
    wait_until(lambda: 'SKIP_PROCESSED' in log.read_text(), 'the sleeper to find its lease lost')
    sleeper.terminate()
    assert sleeper.wait() == 0
    assert arrived(cwd / 'begun') == begun
    assert {row['id']: row for row in postroom.rows()} == settled
    assert 'DISPATCH' not in log.read_text()
    order = first_deliveries(cwd / 'out')
    assert all(payloads == sorted(payloads) for payloads in order.values())
    assert sum(map(len, order.values())) == 200
