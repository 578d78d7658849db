# SPDX-License-Identifier: Apache-2.0
"""A relay with nothing to do, on SQLite (D3)."""
import pytest

import idling


@pytest.mark.parametrize('workers', [2, 8])
def D3_an_idle_relay_makes_one_statement_a_poll_interval(postroom, workers):
    idling.looks_once_a_poll_interval(postroom, workers)


def D3_a_commit_does_not_wait_for_a_sink_that_is_slow(postroom):
    idling.a_slow_sink_keeps_nobody_waiting(postroom, 3)


def D3_all_workers_come_when_there_is_much(postroom):
    idling.all_workers_come(postroom, 4)
