# SPDX-License-Identifier: Apache-2.0
"""Relays while `postroom lease` changes the kind of lease (C7)."""
import random
import signal

from conftest import wait_until
from databases import ordering
from pgsql.server import SOAK

CHANGES = 20 if SOAK else 6
KEYS = 60


def C7_lease_kind_changes_under_load(postroom, tmp_path):
    """And relays are killed, whose lanes a change back to rows has to wait for."""
    seed = random.randrange(10 ** 9)
    random.seed(seed)
    print('seed', seed)
    keys = [f'k{n}' for n in range(KEYS)]
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
    assert ordering.first_deliveries(tmp_path / 'out') == {key: list(range(4 * CHANGES)) for key in keys}
