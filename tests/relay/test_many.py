# SPDX-License-Identifier: Apache-2.0
"""Several relays on one file, and one for long."""
import crowding


def D1_a_relay_that_joins_a_busy_one_gets_its_share(postroom):
    crowding.a_newcomer_gets_its_share(postroom)


def D6_order_holds_while_relays_come_and_go(postroom):
    crowding.relays_come_and_go(postroom)


def D7_messages_and_reloads_do_not_make_it_grow(postroom):
    crowding.memory_does_not_grow(postroom, lambda: None)
