# SPDX-License-Identifier: Apache-2.0
"""Order within a key, on SQLite."""
import pytest

import order_cases


@pytest.mark.parametrize('sink', order_cases.SINKS)
def D6_order_holds_across_relays_retries_and_kills(postroom, sink):
    order_cases.order_outlasts_kills(postroom, sink)


def D6_failing_message_blocks_no_other_key(postroom):
    order_cases.a_failure_holds_back_its_key(postroom)


def D6_dead_letter_unblocks_its_key(postroom):
    order_cases.a_death_lets_the_key_go_on(postroom)


def D1_drain_ignores_messages_blocked_by_dead_letter(postroom):
    order_cases.check_drain_ignores_blocked_messages(postroom)


@pytest.mark.parametrize('freed_by', ['retry', 'purge'])
def D6_dead_letter_blocks_its_key_until_an_operator_acts(postroom, freed_by):
    order_cases.a_death_blocks_the_key(postroom, freed_by)


def D6_relay_suspended_past_its_lease_publishes_no_more_of_batch(postroom):
    order_cases.a_sleeper_publishes_no_more(postroom)
