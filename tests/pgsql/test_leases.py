# SPDX-License-Identifier: Apache-2.0
"""Leases and time, on PostgreSQL, under both kinds of lease."""
import pytest

import surviving


def A5_a_batch_that_takes_longer_than_its_lease_keeps_it(leased):
    surviving.a_long_batch_keeps_its_lease(leased)


# The server's clock alone counts, so that nothing comes due by a relay's jump.
@pytest.mark.parametrize('jump', ['+3600', '-3600'])
def C3_an_hours_jump_of_a_relays_clock_changes_nothing(leased, jump):
    surviving.a_clock_jumps(leased, jump, attempts=1)
