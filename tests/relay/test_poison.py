# SPDX-License-Identifier: Apache-2.0
"""Messages that kill the relay, on SQLite; tests/pgsql has the same for PostgreSQL."""
import surviving


def C5_a_message_that_kills_its_relay_is_buried_alone(postroom):
    surviving.a_killer_is_buried_alone(postroom)
