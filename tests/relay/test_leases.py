# SPDX-License-Identifier: Apache-2.0
"""Leases and time, on SQLite; tests/pgsql has the same for PostgreSQL. Relays that were suspended
past their lease are in test_stop.py and test_order.py."""
import pytest

import survival_cases


def A5_batch_longer_than_its_lease_renews_it(postroom):
    survival_cases.a_long_batch_keeps_its_lease(postroom)


# Here the clock is the process's own: what waits for an attempt comes due by a jump, once.
@pytest.mark.parametrize('jump, attempts', [('+3600', 2), ('-3600', 1)])
def C3_clock_jump_of_one_hour_loses_and_repeats_nothing(postroom, jump, attempts):
    survival_cases.a_clock_jumps(postroom, jump, attempts)
