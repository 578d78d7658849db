# SPDX-License-Identifier: Apache-2.0
"""Order within a key, on SQLite."""
import pytest

import ordering


@pytest.mark.parametrize('sink', ordering.SINKS)
def D6_order_holds_across_relays_retries_and_kills(postroom, sink):
    ordering.order_outlasts_kills(postroom, sink)


def D6_a_failing_message_holds_back_its_own_key_only(postroom):
    ordering.a_failure_holds_back_its_key(postroom)


def D6_a_death_lets_its_key_go_on(postroom):
    ordering.a_death_lets_the_key_go_on(postroom)


def D1_drain_leaves_alone_what_a_death_blocks(postroom):
    ordering.a_drain_leaves_alone_what_is_blocked(postroom)


@pytest.mark.parametrize('freed_by', ['retry', 'purge'])
def D6_a_death_blocks_its_key_until_an_operator_acts(postroom, freed_by):
    ordering.a_death_blocks_the_key(postroom, freed_by)


def D6_a_relay_that_slept_past_its_lease_publishes_no_more_of_that_batch(postroom):
    ordering.a_sleeper_publishes_no_more(postroom)
