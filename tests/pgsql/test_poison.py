# SPDX-License-Identifier: Apache-2.0
"""Messages whose connections are dropped, on PostgreSQL, under both kinds of lease."""
import pytest

from relay.test_poison_sinks import POISON, poison_dies_alone, poisoned_job_dies_alone, serve_http


@pytest.mark.parametrize('lease', ['row', 'lane'])
@pytest.mark.parametrize('key', ['null', '"k"'])
def R1_message_whose_http_connection_is_dropped_becomes_a_dead_letter(postroom, lease, key):
    postroom.ok('lease', lease)
    with serve_http() as url:
        poison_dies_alone(postroom, url + '/{topic}', [('good', key, POISON)])


def R1_job_whose_http_connection_is_dropped_becomes_a_dead_letter(postroom):
    with serve_http() as url:
        poisoned_job_dies_alone(postroom, url)
