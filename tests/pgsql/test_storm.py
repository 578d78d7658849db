# SPDX-License-Identifier: Apache-2.0
"""Relays, sessions, backends and the server itself are killed at random; then the books must balance."""
import os
import random
import signal

import psycopg2

from conftest import wait_until
from pgsql.ledger import Ledger, balance, drain, relays
from pgsql.server import SOAK, signal_if_there

MESSAGES = 60_000 if SOAK else 2500
ROUNDS = 120 if SOAK else 12


def some_backend(server, database):
    """The process of a session of a relay or producer, or None."""
    try:
        pids = server.sql('postgres', (
            'SELECT pid FROM pg_stat_activity WHERE datname = %s '
            "AND application_name IN ('postroom', 'producer')"), database)
    except psycopg2.OperationalError:
        return None
    return random.choice(pids)[0] if pids else None


def terminate(server, database):
    pid = wait_until(lambda: some_backend(server, database), 'a session')
    server.sql('postgres', 'SELECT pg_terminate_backend(%s)', pid)


def kill_backend(server, database):
    """The others are ended too, and the server recovers."""
    recoveries = server.log().count('reinitializing')
    # It may end by itself first.
    while server.log().count('reinitializing') == recoveries:
        pid = wait_until(lambda: some_backend(server, database), 'a session')
        signal_if_there(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f'/proc/{pid}'), 'the backend to be gone')
    wait_until(server.answers, 'the server to recover')


def kill_server(server, database):
    server.stop(signal.SIGKILL)
    server.start()


def restart_server(server, database):
    server.stop(random.choice([signal.SIGINT, signal.SIGQUIT]))
    server.start()


def E1_committed_message_is_delivered_after_any_kill(server, leased, database, sql, tmp_path):
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    sql('CREATE TABLE business (word text PRIMARY KEY)')
    ledger = Ledger(leased, 8)
    crowd = relays(leased, 8)
    blows = [terminate, kill_backend, kill_server, restart_server]
    try:
        for round in range(1, ROUNDS + 1):
            # The moment of a blow: somewhere while the next few messages are on their way.
            goal = MESSAGES * round // ROUNDS - random.randrange(MESSAGES // ROUNDS)
            wait_until(lambda: len(ledger.words()) >= goal, f'{goal} messages to be committed')
            crowd.kill_one()
            # Each kind first, then as it comes.
            (blows[round - 1] if round <= len(blows) else random.choice(blows))(server, database)
        wait_until(lambda: len(ledger.words()) >= MESSAGES, 'all messages to be committed')
    finally:
        ledger.crowd.end()
        crowd.end()
    # The sessions of the killed may still be at work.
    wait_until(lambda: some_backend(server, database) is None, 'all sessions to end')
    drain(leased, sql)
    balance(sql, tmp_path, ledger, crowd.kills + len(crowd.members))
    lines = crowd.log.read_text(encoding='utf-8').splitlines()
    assert [line for line in lines if not line.startswith('OUTBOX_')] == []
