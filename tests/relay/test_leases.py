# SPDX-License-Identifier: Apache-2.0
"""Leases and time, on SQLite; tests/pgsql has the same for PostgreSQL. What a relay does that slept
past its lease stands in test_stopping.py and test_order.py."""
import pytest

import surviving


def A5_a_batch_that_takes_longer_than_its_lease_keeps_it(postroom):
    surviving.a_long_batch_keeps_its_lease(postroom)


# Here the clock is the process's own: what waits for an attempt comes due by a jump, once.
@pytest.mark.parametrize('jump, attempts', [('+3600', 2), ('-3600', 1)])
def C3_an_hours_jump_of_the_clock_loses_and_doubles_nothing(postroom, jump, attempts):
    surviving.a_clock_jumps(postroom, jump, attempts)
