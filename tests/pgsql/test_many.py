# SPDX-License-Identifier: Apache-2.0
"""Several relays on one database, and one for long, under both kinds of lease."""
import random
import signal

import relay_fleet_cases
import order_cases
from conftest import wait_until
from pgsql.server import SOAK

CHANGES = 20 if SOAK else 6


def D1_relay_that_joins_a_busy_one_gets_its_share(leased):
    relay_fleet_cases.a_newcomer_gets_its_share(leased)


def D6_order_holds_while_relays_start_and_stop(leased):
    relay_fleet_cases.relays_come_and_go(leased)


def C7_lease_kind_changes_under_load(postroom, tmp_path):
    """And relays are killed, whose lanes a change back to rows has to wait for."""
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    keys = [f'k{n}' for n in range(relay_fleet_cases.KEYS)]
    relays = [order_cases.begin_relay(postroom, order_cases.SINKS['file']) for _ in range(3)]
    try:
        for n in range(CHANGES):
            changing = postroom.start('lease', ['lane', 'row'][n % 2])
            for payload in range(4 * n, 4 * n + 4):
                order_cases.enqueue(postroom, [(key, payload) for key in random.sample(keys, len(keys))])
            killed = relays.pop(random.randrange(len(relays)))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            relays.append(order_cases.begin_relay(postroom, order_cases.SINKS['file']))
            out, err = changing.communicate()
            assert changing.returncode == 0, (out, err)
        wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()
    assert postroom.stats()['dead'] == 0
    assert order_cases.first_deliveries(tmp_path / 'out') == {key: list(range(4 * CHANGES)) for key in keys}


def D7_memory_does_not_grow_with_messages_reloads_and_reconnects(leased, sql):
    relay_fleet_cases.memory_does_not_grow(leased, lambda: sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'postroom' AND datname = current_database()"))
