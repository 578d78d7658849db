# SPDX-License-Identifier: Apache-2.0
"""Several relays on one file, and one for long."""
import relay_fleet_cases


def D1_relay_that_joins_a_busy_one_gets_its_share(postroom):
    relay_fleet_cases.a_newcomer_gets_its_share(postroom)


def D6_order_holds_while_relays_start_and_stop(postroom):
    relay_fleet_cases.relays_come_and_go(postroom)


def D7_memory_does_not_grow_with_messages_and_reloads(postroom):
    relay_fleet_cases.memory_does_not_grow(postroom, lambda: None)
