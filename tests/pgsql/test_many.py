# SPDX-License-Identifier: Apache-2.0
"""Several relays on one database, and one for long, under both kinds of lease."""
import random
import signal

import crowding
import ordering
from conftest import wait_until
from pgsql.server import SOAK

CHANGES = 20 if SOAK else 6


def D1_a_relay_that_joins_a_busy_one_gets_its_share(leased):
    crowding.a_newcomer_gets_its_share(leased)


def D6_order_holds_while_relays_come_and_go(leased):
    crowding.relays_come_and_go(leased)


def C7_the_kind_of_lease_changes_while_relays_and_producers_are_at_work(postroom, tmp_path):
    """And relays are killed, whose lanes a change back to rows has to wait for."""
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    keys = [f'k{n}' for n in range(crowding.KEYS)]
    relays = [ordering.begin_relay(postroom, ordering.SINKS['file']) for _ in range(3)]
    try:
        for n in range(CHANGES):
            changing = postroom.start('lease', ['lane', 'row'][n % 2])
            for payload in range(4 * n, 4 * n + 4):
                ordering.enqueue(postroom, [(key, payload) for key in random.sample(keys, len(keys))])
            killed = relays.pop(random.randrange(len(relays)))
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            relays.append(ordering.begin_relay(postroom, ordering.SINKS['file']))
            out, err = changing.communicate()
            assert changing.returncode == 0, (out, err)
        wait_until(lambda: postroom.stats()['backlog'] == 0, 'all to be delivered')
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()
    assert postroom.stats()['dead'] == 0
    assert ordering.first_arrivals(tmp_path / 'out') == {key: list(range(4 * CHANGES)) for key in keys}


def D7_messages_reloads_and_reconnects_do_not_make_it_grow(leased, sql):
    crowding.memory_does_not_grow(leased, lambda: sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'postroom' AND datname = current_database()"))
