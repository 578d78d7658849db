# SPDX-License-Identifier: Apache-2.0
"""Several relays on one database, and one for long, under both kinds of lease."""
import pytest

import crowding


@pytest.fixture(params=['row', 'lane'])
def leased(request, postroom):
    postroom.ok('lease', request.param)
    return postroom


def D1_a_relay_that_joins_a_busy_one_gets_its_share(leased):
    crowding.a_newcomer_gets_its_share(leased)


def D6_order_holds_while_relays_come_and_go(leased):
    crowding.relays_come_and_go(leased)


def D7_messages_reloads_and_reconnects_do_not_make_it_grow(leased, sql):
    crowding.memory_does_not_grow(leased, lambda: sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'postroom' AND datname = current_database()"))
