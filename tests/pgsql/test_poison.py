# SPDX-License-Identifier: Apache-2.0
"""Messages that kill the relay, on PostgreSQL, under both kinds of lease."""
import pytest

import surviving


@pytest.mark.parametrize('lease', ['row', 'lane'])
def C5_a_message_that_kills_its_relay_is_buried_alone(postroom, lease):
    postroom.ok('lease', lease)
    surviving.a_killer_is_buried_alone(postroom)
