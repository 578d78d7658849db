# SPDX-License-Identifier: Apache-2.0
"""What a relay needs of memory, on PostgreSQL, under both kinds of lease."""
import psycopg2
import pytest

import memory_cases
from conftest import Postroom
from servers.brokers import BROKERS, start_broker

both_leases = pytest.mark.parametrize('lease', ['row', 'lane'])


@both_leases
@pytest.mark.parametrize('sink', ['stdout:', 'file:out', 'exec:cat > /dev/null', 'http'])
def D8_relay_memory_is_bounded_by_its_largest_message(postroom, lease, sink):
    postroom.ok('lease', lease)
    memory_cases.relay_memory_is_bounded(postroom, sink)


@both_leases
@pytest.mark.parametrize('keyed', [False, True])
def D8_relay_memory_is_bounded_by_printed_size_of_payloads(postroom, sql, lease, keyed):
    """27 KiB of rows print to 220 MB; the largest of them to 64 MiB."""
    postroom.ok('lease', lease)
    key = "'k' || n % 3" if keyed else 'NULL'
    sql("INSERT INTO postroom_outbox (topic, payload, key) SELECT 'long', "
        f"('[' || repeat('1e131071,', 510) || '0]')::jsonb, {key} FROM generate_series(1, 3) AS n")
    sql("INSERT INTO postroom_outbox (topic, payload, key) SELECT 'long', "
        f"'[1e131071]', {key} FROM generate_series(1, 200) AS n")
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'small', '{}' "
        'FROM generate_series(1, 50)')
    counts = memory_cases.deliver(postroom, 64 << 20, '--to', 'exec:cat > /dev/null')
    assert counts['delivered'] == 253, counts


@both_leases
def D8_rows_from_before_the_limit_do_not_stop_the_relay(postroom, sql, lease):
    """Rows that no limit has checked: some print to 200 MiB, one to more than a server can print."""
    postroom.ok('lease', lease)
    sql('ALTER DOMAIN postroom_payload DROP CONSTRAINT "payload: 64 MiB at most when printed"')
    for count, numbers in ((2, 1600), (1, 20000)):
        sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'long', "
            f"('[' || repeat('1e131071,', {numbers}) || '0]')::jsonb FROM generate_series(1, {count})")
    sql("INSERT INTO postroom_outbox (topic, payload) SELECT 'small', '{}' "
        'FROM generate_series(1, 50)')
    counts = memory_cases.deliver(postroom, 200 << 20, '--to', 'exec:cat > /dev/null', '--max-attempts',
                              2, '--base-delay', '10ms')
    assert (counts['delivered'], counts['dead']) == (52, 1), counts


def E5_value_from_another_table_is_checked_as_it_is_printed(postroom, sql):
    """It comes compressed, and its stored size says nothing."""
    sql('CREATE TABLE other (payload jsonb)')
    sql("INSERT INTO other SELECT ('[' || repeat('1e131071,', 2000) || '0]')::jsonb")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_outbox (topic, payload) SELECT 't', payload FROM other")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_inbox (id, handler_name, payload) SELECT 'i', 'h', payload FROM other")
    with pytest.raises(psycopg2.errors.CheckViolation, match='64 MiB at most when printed'):
        sql("INSERT INTO postroom_inbox (id, handler_name, checkpoint) SELECT 'i', 'h', payload FROM other")


@both_leases
def D8_sweep_retry_and_purge_need_no_memory_for_content(postroom, lease):
    postroom.ok('lease', lease)
    memory_cases.sweep_retry_and_purge_need_no_memory(postroom)


@both_leases
def C5_message_that_cannot_be_received_is_dead_lettered(postroom, lease):
    postroom.ok('lease', lease)
    memory_cases.a_message_that_does_not_fit_is_dead_lettered(postroom)


@both_leases
def C5_message_that_crashes_relay_when_received_is_dead_lettered(postroom, lease):
    postroom.ok('lease', lease)
    memory_cases.a_message_that_kills_while_received_is_dead_lettered(postroom)


# A body of 50 MiB.
ZEROS = "decode(repeat('00', 52428800), 'hex')"


def C5_job_that_cannot_be_received_is_dead_lettered(postroom, sql):
    memory_cases.a_job_that_does_not_fit_is_dead_lettered(postroom, sql, ZEROS)


def C5_job_that_kills_consumer_while_it_is_received_is_dead_lettered(postroom, sql):
    memory_cases.a_job_that_kills_while_received_is_dead_lettered(postroom, sql, ZEROS)


def P1_list_does_not_read_content(postroom):
    memory_cases.list_does_not_read_content(postroom)


def D8_consumer_memory_is_bounded_by_its_largest_event(postroom):
    memory_cases.consumer_memory_is_bounded(postroom)


@pytest.mark.parametrize('name', BROKERS)
def D8_consumer_memory_is_bounded_whatever_its_broker_holds(postroom, sql, tmp_path, name):
    """With --sql each worker reads for itself."""
    (tmp_path / 'shop').mkdir()
    shop = Postroom(tmp_path / 'shop' / 'shop.db', tmp_path / 'shop')
    shop.ok('migrate')
    broker = start_broker(name, postroom, tmp_path)
    try:
        memory_cases.source_memory_is_bounded(postroom, sql, shop, broker, '--sql', 'SELECT 1', '--workers',
                                          4 if broker.consumers > 1 else 1)
    finally:
        broker.end()


def E5_payload_that_prints_to_more_than_64_mib_is_refused(postroom):
    memory_cases.payload_that_prints_too_large_is_refused(postroom)
