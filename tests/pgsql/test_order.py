# SPDX-License-Identifier: Apache-2.0
"""Order within a key, on PostgreSQL, under both kinds of lease."""
import pytest

import order_cases


@pytest.fixture(params=['row', 'lane'])
def leased(request, postroom):
    assert postroom.ok('lease', request.param).out == f'{request.param}\n'
    assert postroom.ok('lease', '--json').object == {'lease': request.param}
    return postroom


@pytest.mark.parametrize('sink', order_cases.SINKS)
def D6_order_holds_across_relays_retries_and_kills(leased, sink):
    order_cases.order_outlasts_kills(leased, sink)


def D6_failing_message_blocks_no_other_key(leased):
    order_cases.a_failure_holds_back_its_key(leased)


def D6_dead_letter_unblocks_its_key(leased):
    order_cases.a_death_lets_the_key_go_on(leased)


def D1_drain_ignores_messages_blocked_by_dead_letter(leased):
    order_cases.check_drain_ignores_blocked_messages(leased)


@pytest.mark.parametrize('freed_by', ['retry', 'purge'])
def D6_dead_letter_blocks_its_key_until_an_operator_acts(leased, freed_by):
    order_cases.a_death_blocks_the_key(leased, freed_by)


def D6_relay_suspended_past_its_lease_publishes_no_more_of_batch(leased):
    order_cases.a_sleeper_publishes_no_more(leased)
