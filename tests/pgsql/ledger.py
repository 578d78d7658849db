# SPDX-License-Identifier: Apache-2.0
"""Crowds of producers and relays, and the balance of their records."""
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys

from conftest import PROGRAM
from sink_files import words_in

PRODUCER = pathlib.Path(__file__).parent / 'producer.py'
BATCH = 20
WORKERS = 2
# The lease outlasts every outage: what a living relay has published, it will settle.
RELAY = ['relay', '--to', 'file:out', '--lease', '60s', '--batch-size', str(BATCH), '--workers',
         str(WORKERS), '--max-attempts', '1000', '--base-delay', '10ms', '--log-level', 'warn']


class Crowd:
    """Processes that are started again whenever they are killed."""

    def __init__(self, postroom, name, commands):
        self.postroom, self.commands, self.kills = postroom, commands, 0
        self.log = pathlib.Path(postroom.cwd, f'{name}.log')
        self.starts = [0] * len(commands)
        self.members = [self.start(n) for n in range(len(commands))]

    def start(self, n):
        self.starts[n] += 1
        with open(self.log, 'ab') as log:
            return subprocess.Popen(self.commands[n](self.starts[n]), cwd=self.postroom.cwd,
                                    env=self.postroom.environment(), stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, start_new_session=True)

    def kill(self, n):
        """The whole group, so that a producer's half-done program dies with it."""
        assert self.members[n].poll() is None, self.log.read_text()
        os.killpg(self.members[n].pid, signal.SIGKILL)
        self.members[n].wait()
        self.kills += 1

    def kill_one(self):
        n = random.randrange(len(self.members))
        self.kill(n)
        self.members[n] = self.start(n)

    def end(self):
        for member in self.members:
            if member.poll() is None:
                os.killpg(member.pid, signal.SIGKILL)
            member.wait()


class Ledger:
    """What the producers know to be committed."""

    def __init__(self, postroom, producers):
        self.paths = [pathlib.Path(postroom.cwd, f'ledger{n}') for n in range(producers)]
        self.crowd = Crowd(postroom, 'producers', [
            lambda start, n=n: [sys.executable, str(PRODUCER), postroom.db, str(self.paths[n]),
                                f'p{n}s{start}', PROGRAM] for n in range(producers)])

    def words(self):
        return [word for path in self.paths for word in words_in(path)]


def relays(postroom, count):
    return Crowd(postroom, 'relays', [lambda start: [PROGRAM, *RELAY]] * count)


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


def drain(postroom, sql):
    """After all relays have ended: messages that they had leased are delivered too."""
    sql("UPDATE postroom_outbox SET locked_until = clock_timestamp() WHERE status = 'processing'")
    sql('UPDATE postroom_lanes SET locked_until = clock_timestamp() WHERE locked_by IS NOT NULL')
    postroom.ok('relay', '--drain', '--to', 'file:out', '--max-attempts', '1000', '--base-delay',
                '10ms', '--log-level', 'warn')


def balance(sql, tmp_path, ledger, relay_kills):
    rows = {payload['word']: (status, attempts) for payload, status, attempts in sql(
        'SELECT payload, status, attempts FROM postroom_messages')}
    business = {word for word, in sql('SELECT word FROM business')}
    found, torn = delivered_in(tmp_path / 'out')

    # Nothing that a producer knows to be committed is missing; business and message go together.
    assert set(ledger.words()) <= set(rows)
    assert business == {word for word in rows if not word.endswith('-program')}
    assert not [word for word in rows if word.endswith('-never')]
    # All of it has been delivered, and nothing that was never committed.
    assert {word for _, _, word in found} == set(rows)
    assert {status for status, _ in rows.values()} == {'delivered'}
    # Twice only what was in flight at a relay's death, and never twice within one attempt.
    assert max(collections.Counter((id, attempt) for id, attempt, _ in found).values()) == 1
    copies = collections.Counter(word for _, _, word in found)
    assert all(copies[word] <= attempts for word, (_, attempts) in rows.items())
    assert len(found) - len(rows) <= relay_kills * BATCH * WORKERS
    assert torn <= relay_kills
