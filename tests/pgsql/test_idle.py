# SPDX-License-Identifier: Apache-2.0
"""A relay with nothing to do, on PostgreSQL, under both kinds of lease (D3)."""
import idle_cases


def D3_idle_relay_runs_one_statement_per_poll_interval(leased):
    idle_cases.looks_once_a_poll_interval(leased, 2)


def D3_commit_does_not_wait_for_a_slow_sink(leased):
    idle_cases.check_slow_sink_blocks_no_other_worker(leased, 3)


def D3_large_backlog_wakes_all_workers(leased):
    idle_cases.all_workers_come(leased, 4)
