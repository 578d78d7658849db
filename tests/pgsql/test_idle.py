# SPDX-License-Identifier: Apache-2.0
"""A relay with nothing to do, on PostgreSQL, under both kinds of lease (D3)."""
import idling


def D3_an_idle_relay_makes_one_statement_a_poll_interval(leased):
    idling.looks_once_a_poll_interval(leased, 2)


def D3_a_commit_does_not_wait_for_a_sink_that_is_slow(leased):
    idling.a_slow_sink_keeps_nobody_waiting(leased, 3)


def D3_all_workers_come_when_there_is_much(leased):
    idling.all_workers_come(leased, 4)
