# SPDX-License-Identifier: Apache-2.0
"""Messages that kill the relay, on SQLite; tests/pgsql has the same for PostgreSQL."""
import survival_cases


def C5_message_that_crashes_relay_is_dead_lettered_alone(postroom):
    survival_cases.check_poison_message_is_dead_lettered_alone(postroom)
