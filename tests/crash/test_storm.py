# SPDX-License-Identifier: Apache-2.0
"""Producers and relays that are killed at random moments; then the books must balance."""
import collections
import json
import os
import random
import signal
import subprocess
import sys
import pathlib

from conftest import PROGRAM, wait_until

SOAK = os.environ.get('POSTROOM_SOAK') == '1'
MESSAGES = 20_000 if SOAK else 700
KILLS = 200 if SOAK else 12  # of producers, and as many of relays
BATCH = 20
WORKERS = 2
PRODUCER = pathlib.Path(__file__).parent / 'producer.py'


class Crowd:
    """Processes that are started again whenever they are killed."""

    def __init__(self, commands, postroom):
        self.commands, self.postroom, self.kills = commands, postroom, 0
        self.starts = [0] * len(commands)
        self.members = [self.start(n) for n in range(len(commands))]

    def start(self, n):
        self.starts[n] += 1
        return subprocess.Popen(self.commands[n](self.starts[n]), cwd=self.postroom.cwd,
                                env=self.postroom.environment(), stdin=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, start_new_session=True)

    def kill(self, n):
        """The whole group, so that a producer's half-done program dies with it."""
        assert self.members[n].poll() is None, self.members[n].stderr.read()
        os.killpg(self.members[n].pid, signal.SIGKILL)
        self.members[n].communicate()
        self.kills += 1

    def kill_one(self):
        n = random.randrange(len(self.members))
        self.kill(n)
        self.members[n] = self.start(n)

    def end(self):
        for member in self.members:
            if member.poll() is None:
                os.killpg(member.pid, signal.SIGKILL)
            member.communicate()


def words_in(paths):
    return [word for path in paths if path.exists() for word in path.read_text().split()]


def delivered_in(path):
    """(id, attempt, word) of each whole line, and how many were torn by a kill."""
    found, torn = [], 0
    for line in path.read_bytes().split(b'\n'):
        try:
            message = json.loads(line)
            found.append((message['id'], message['attempt'], message['payload']['word']))
        except (ValueError, KeyError, TypeError):
            torn += bool(line)
    return found, torn


def E1_committed_message_is_delivered_pending_or_dead_after_any_kill(postroom, db, sql, tmp_path):
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    postroom.ok('migrate')
    sql('CREATE TABLE business (word TEXT PRIMARY KEY)')
    ledgers = [tmp_path / f'ledger{n}' for n in range(4)]
    producers = Crowd([lambda start, n=n: [sys.executable, PRODUCER, db, ledgers[n], f'p{n}s{start}',
                                           PROGRAM] for n in range(4)], postroom)
    relay = [PROGRAM, 'relay', '--to', 'file:out', '--lease', '3s', '--batch-size', str(BATCH),
             '--workers', str(WORKERS), '--max-attempts', '1000', '--base-delay', '10ms',
             '--log-level', 'warn']
    relays = Crowd([lambda start: relay] * 2, postroom)
    try:
        for kill in range(1, KILLS + 1):
            goal = MESSAGES * kill // KILLS
            # The moment of a kill: somewhere while the next few messages are on their way.
            goal -= random.randrange(MESSAGES // KILLS)
            wait_until(lambda: len(words_in(ledgers)) >= goal, f'{goal} messages to be committed')
            producers.kill_one()
            wait_until(lambda: (tmp_path / 'out').exists(), 'a delivery')
            relays.kill_one()
        wait_until(lambda: len(words_in(ledgers)) >= MESSAGES, 'all messages to be committed')
    finally:
        producers.end()
        relays.end()
    postroom.ok('relay', '--drain', '--to', 'file:out', '--max-attempts', '1000', '--base-delay',
                '10ms', '--log-level', 'warn')
    balance(postroom, sql, tmp_path, ledgers, relays.kills + 2)


def balance(postroom, sql, tmp_path, ledgers, kills):
    assert sql('PRAGMA integrity_check') == [('ok',)]
    rows = {json.loads(payload)['word']: (id, status, attempts) for id, payload, status, attempts in sql(
        'SELECT id, payload, status, attempts FROM postroom_outbox')}
    committed = set(words_in(ledgers))
    business = {word for word, in sql('SELECT word FROM business')}
    found, torn = delivered_in(tmp_path / 'out')
    delivered = {word for _, _, word in found}

    # Nothing that a producer knows to be committed is missing; business and message go together.
    assert committed <= set(rows)
    assert business == {word for word in rows if not word.endswith('-program')}
    assert not [word for word in rows if word.endswith('-never')]
    # All of it has been delivered, and nothing that was never committed.
    assert delivered == set(rows)
    assert {status for _, status, _ in rows.values()} == {'delivered'}
    # Twice only what was in flight at a kill, and never twice within one attempt.
    assert max(collections.Counter((id, attempt) for id, attempt, _ in found).values()) == 1
    copies = collections.Counter(word for _, _, word in found)
    assert all(copies[word] <= attempts for word, (_, _, attempts) in rows.items())
    assert len(found) - len(rows) <= kills * BATCH * WORKERS
    assert torn <= kills
