# SPDX-License-Identifier: Apache-2.0
"""A relay with nothing to do, on SQLite (D3)."""
import pytest

import idle_cases


@pytest.mark.parametrize('workers', [2, 8])
def D3_idle_relay_runs_one_statement_per_poll_interval(postroom, workers):
    idle_cases.looks_once_a_poll_interval(postroom, workers)


def D3_commit_does_not_wait_for_a_slow_sink(postroom):
    idle_cases.check_slow_sink_blocks_no_other_worker(postroom, 3)


def D3_large_backlog_wakes_all_workers(postroom):
    idle_cases.all_workers_come(postroom, 4)
