# SPDX-License-Identifier: Apache-2.0
"""What a relay needs of memory, on SQLite; tests/pgsql has the same for PostgreSQL."""
import pytest

import memory_cases
from conftest import Postroom, wait_until
from servers.brokers import BROKERS, start_broker


@pytest.mark.parametrize('sink', ['stdout:', 'file:out', 'exec:cat > /dev/null', 'http'])
def D8_relay_memory_is_bounded_by_its_largest_message(postroom, sink):
    memory_cases.relay_memory_is_bounded(postroom, sink)


def D8_sweep_retry_and_purge_need_no_memory_for_content(postroom):
    memory_cases.sweep_retry_and_purge_need_no_memory(postroom)


def P1_list_does_not_read_content(postroom):
    memory_cases.list_does_not_read_content(postroom)


def D8_consumer_memory_is_bounded_by_its_largest_event(postroom):
    memory_cases.consumer_memory_is_bounded(postroom)


@pytest.mark.parametrize('name', BROKERS)
def D8_consumer_memory_is_bounded_whatever_its_broker_holds(postroom, sql, tmp_path, name):
    (tmp_path / 'shop').mkdir()
    shop = Postroom(tmp_path / 'shop' / 'shop.db', tmp_path / 'shop')
    shop.ok('migrate')
    broker = start_broker(name, postroom, tmp_path)
    try:
        memory_cases.source_memory_is_bounded(postroom, sql, shop, broker, '--sql', 'SELECT 1')
    finally:
        broker.end()


def E5_payload_that_prints_to_more_than_64_mib_is_refused(postroom):
    memory_cases.payload_that_prints_too_large_is_refused(postroom)


def C5_message_that_cannot_be_received_is_dead_lettered(postroom):
    memory_cases.a_message_that_does_not_fit_is_dead_lettered(postroom)


def C5_message_that_crashes_relay_when_received_is_dead_lettered(postroom):
    memory_cases.a_message_that_kills_while_received_is_dead_lettered(postroom)


def C5_job_that_cannot_be_received_is_dead_lettered(postroom, sql):
    memory_cases.a_job_that_does_not_fit_is_dead_lettered(postroom, sql, 'zeroblob(52428800)')


def C5_job_that_kills_consumer_while_it_is_received_is_dead_lettered(postroom, sql):
    memory_cases.a_job_that_kills_while_received_is_dead_lettered(postroom, sql, 'zeroblob(52428800)')


def D8_worker_does_not_wait_for_memory_that_it_holds_itself(postroom):
    """The content of a message behind a failed one is dropped before a larger one is loaded."""
    text = '"' + 'x' * (300 << 10) + '"'
    for _ in range(2):
        postroom.ok('enqueue', 'bad', '-', '--key', 'k', input=text)
    memory_cases.bodies(postroom, 1, 17 << 20)
    relay = postroom.start('relay', '--workers', 1, '--base-delay', '1h', '--max-delay', '1h',
                           '--to', 'exec:cat >/dev/null; [ "$POSTROOM_TOPIC" != bad ]', stdout=None, stderr=None)
    wait_until(lambda: postroom.stats()['delivered'] == 1, 'the largest message')
    assert postroom.stats()['failed_pending'] == 1
    memory_cases.finish(relay)
