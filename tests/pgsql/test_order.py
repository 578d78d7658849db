# SPDX-License-Identifier: Apache-2.0
"""Order within a key, on PostgreSQL, under both kinds of lease."""
import pytest

import ordering


@pytest.fixture(params=['row', 'lane'])
def leased(request, postroom):
    assert postroom.ok('lease', request.param).out == f'{request.param}\n'
    assert postroom.ok('lease', '--json').object == {'lease': request.param}
    return postroom


@pytest.mark.parametrize('sink', ordering.SINKS)
def D6_order_holds_across_relays_retries_and_kills(leased, sink):
    ordering.order_outlasts_kills(leased, sink)


def D6_a_failing_message_holds_back_its_own_key_only(leased):
    ordering.a_failure_holds_back_its_key(leased)


def D6_a_death_lets_its_key_go_on(leased):
    ordering.a_death_lets_the_key_go_on(leased)


def D1_drain_leaves_alone_what_a_death_blocks(leased):
    ordering.a_drain_leaves_alone_what_is_blocked(leased)


@pytest.mark.parametrize('freed_by', ['retry', 'purge'])
def D6_a_death_blocks_its_key_until_an_operator_acts(leased, freed_by):
    ordering.a_death_blocks_the_key(leased, freed_by)


def D6_a_relay_that_slept_past_its_lease_publishes_no_more_of_that_batch(leased):
    ordering.a_sleeper_publishes_no_more(leased)
