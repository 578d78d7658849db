# SPDX-License-Identifier: Apache-2.0
"""Leases and time, on PostgreSQL, under both kinds of lease."""
import pytest

import survival_cases


def A5_batch_longer_than_its_lease_renews_it(leased):
    survival_cases.a_long_batch_keeps_its_lease(leased)


# The server's clock alone counts, so that nothing comes due by a relay's jump.
@pytest.mark.parametrize('jump', ['+3600', '-3600'])
def C3_clock_jump_of_one_hour_does_not_affect_relay(leased, jump):
    survival_cases.a_clock_jumps(leased, jump, attempts=1)
